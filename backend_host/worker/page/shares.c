/*
 * See shares.h. A place that no member of the vGPU holds is free, whatever stands there. Who takes one writes CLOSED
 * there first, and looks at the holders once more; who joins sets its bit first, and looks at the name once more, both
 * sequentially consistent: so one of the two at least sees the other, and gives up.
 */
#include "page/shares.h"

#include "page/sets.h"

#define CLOSED UINT64_C(1)

static uint32_t nr_places(const struct fgw_account *account)
{
    const uint32_t nr = atomic_load(&account->nr_shares);
    return nr < FGW_MAX_SHARES ? nr : FGW_MAX_SHARES;
}

static const struct fgw_worker_set *members_of(const struct fgw_grantee *grantee)
{
    return &grantee->control->decided->vgpus[grantee->number - 1].members;
}

static bool join(struct fgw_share *share, uint32_t slot, uint64_t name, uint64_t bytes)
{
    if (atomic_load(&share->name) != name || atomic_load(&share->bytes) != bytes) {
        return false;
    }
    fgw_set_add(&share->holders, slot);
    if (atomic_load(&share->name) == name) {
        return true;
    }
    fgw_set_remove(&share->holders, slot);
    return false;
}

static bool take(struct fgw_share *share, const struct fgw_worker_set *members, uint32_t slot, uint64_t name,
                 uint64_t bytes)
{
    uint64_t before = atomic_load(&share->name);
    if (before == CLOSED || fgw_set_has_common(&share->holders, members) ||
        !atomic_compare_exchange_strong(&share->name, &before, CLOSED)) {
        return false;
    }
    if (fgw_set_has_common(&share->holders, members)) {
        atomic_store(&share->name, before);
        return false;
    }
    for (uint32_t i = 0; i < FGW_WORKER_WORDS; i++) {
        atomic_store(&share->holders.words[i], 0);
    }
    atomic_store(&share->bytes, bytes);
    fgw_set_add(&share->holders, slot);
    atomic_store(&share->name, name);
    return true;
}

void fgw_share_join(struct fgw_grantee *grantee, uint64_t name, uint64_t bytes)
{
    struct fgw_account *account = grantee->account;
    const uint32_t slot = grantee->slot_index;
    if (name == 0 || name == CLOSED) {
        return;
    }
    for (uint32_t i = 0; i < nr_places(account); i++) {
        if (join(&account->shares[i], slot, name, bytes)) {
            return;
        }
    }
    for (uint32_t i = 0; i < FGW_MAX_SHARES; i++) {
        if (take(&account->shares[i], members_of(grantee), slot, name, bytes)) {
            uint32_t nr = atomic_load(&account->nr_shares);
            while (nr < i + 1 && !atomic_compare_exchange_weak(&account->nr_shares, &nr, i + 1)) {
            }
            return;
        }
    }
}

void fgw_share_leave(struct fgw_grantee *grantee, uint64_t name)
{
    struct fgw_account *account = grantee->account;
    for (uint32_t i = 0; i < nr_places(account); i++) {
        if (atomic_load(&account->shares[i].name) == name) {
            fgw_set_remove(&account->shares[i].holders, grantee->slot_index);
        }
    }
}

uint64_t fgw_shares_beyond_once(const struct fgw_control *control, uint32_t index, uint64_t most_bytes)
{
    const struct fgw_account *account = control->accounts[index];
    const struct fgw_worker_set *members = &control->decided->vgpus[index].members;
    uint64_t beyond_bytes = 0;
    for (uint32_t i = 0; i < nr_places(account); i++) {
        const struct fgw_share *share = &account->shares[i];
        const uint32_t nr = fgw_set_nr_common(&share->holders, members);
        const uint64_t bytes = atomic_load(&share->bytes);
        beyond_bytes += nr > 1 ? (nr - 1) * (bytes < most_bytes ? bytes : most_bytes) : 0;
    }
    return beyond_bytes;
}

void fgw_shares_clear(struct fgw_control *control, uint32_t index, uint32_t slot)
{
    struct fgw_account *account = control->accounts[index];
    for (uint32_t i = 0; i < nr_places(account); i++) {
        fgw_set_remove(&account->shares[i].holders, slot);
    }
}
