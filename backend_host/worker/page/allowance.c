#include "page/allowance.h"

#define USED_UP UINT64_C(1)

static uint64_t over_limit(uint64_t ns, struct fgw_rate rate)
{
    return ns > UINT64_MAX / FGW_ALLOWANCE_WHOLE / 2 ? UINT64_MAX / 4 : ns * FGW_ALLOWANCE_WHOLE / rate.permille;
}

/* Nobody saves more than the slice that this makes. */
static uint64_t least(struct fgw_rate rate, uint64_t now_ns)
{
    const uint64_t depth_ns = over_limit(rate.slice_ns, rate);
    return now_ns > depth_ns ? now_ns - depth_ns : 0;
}

static uint64_t moment(uint64_t word, struct fgw_rate rate, uint64_t now_ns)
{
    const uint64_t until_ns = word & ~USED_UP, least_ns = least(rate, now_ns);
    return until_ns > least_ns ? until_ns : least_ns;
}

static uint64_t marked(uint64_t until_ns, uint64_t now_ns)
{
    const uint64_t word = until_ns & ~USED_UP;
    return word > now_ns ? word | USED_UP : word;
}

uint64_t fgw_allowance_after(uint64_t word, struct fgw_rate rate, uint64_t used_ns, uint64_t now_ns)
{
    return marked(moment(word, rate, now_ns) + over_limit(used_ns, rate), now_ns);
}

uint64_t fgw_allowance_return_ns(uint64_t word, struct fgw_rate rate)
{
    return word & USED_UP ? (word & ~USED_UP) + over_limit(rate.slice_ns, rate) - rate.slice_ns : 0;
}

uint64_t fgw_allowance_room_ns(uint64_t word, struct fgw_rate rate, uint64_t now_ns)
{
    const uint64_t until_ns = moment(word, rate, now_ns);
    if (until_ns >= now_ns || fgw_allowance_return_ns(word, rate) > now_ns) {
        return 0;
    }
    return (now_ns - until_ns) * rate.permille / (FGW_ALLOWANCE_WHOLE - rate.permille);
}

uint64_t fgw_allowance_changed(uint64_t word, struct fgw_rate before, struct fgw_rate after, uint64_t now_ns)
{
    const uint64_t until_ns = word & ~USED_UP;
    if (until_ns <= now_ns) {
        return until_ns;
    }
    const uint64_t ahead_ns = until_ns - now_ns; /* a thousandth is lost so, where it is as long as centuries */
    return marked(now_ns + over_limit(ahead_ns / FGW_ALLOWANCE_WHOLE * before.permille, after), now_ns);
}

/* By the slice of all, also where its turns last otherwise: the auditor counts by that, too. */
static struct fgw_rate rate_of(const struct fgw_grantee *grantee)
{
    return (struct fgw_rate){
        .permille = atomic_load_explicit(&grantee->decided->limit_permille, memory_order_relaxed),
        .slice_ns = atomic_load_explicit(&grantee->control->decided->slice_ns, memory_order_relaxed),
    };
}

static bool is_limit(struct fgw_rate rate)
{
    return rate.permille != 0 && rate.permille < FGW_ALLOWANCE_WHOLE;
}

void fgw_allowance_charge(const struct fgw_grantee *grantee, uint64_t used_ns, uint64_t now_ns)
{
    const struct fgw_rate rate = rate_of(grantee);
    if (!is_limit(rate)) {
        return;
    }
    _Atomic uint64_t *word = &grantee->account->limited_until_ns;
    uint64_t before = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(word, &before, fgw_allowance_after(before, rate, used_ns, now_ns))) {
    }
}

static uint64_t word_of(const struct fgw_grantee *grantee)
{
    return atomic_load_explicit(&grantee->account->limited_until_ns, memory_order_relaxed);
}

uint64_t fgw_allowance_left_ns(const struct fgw_grantee *grantee, uint64_t now_ns)
{
    const struct fgw_rate rate = rate_of(grantee);
    return is_limit(rate) ? fgw_allowance_room_ns(word_of(grantee), rate, now_ns) : UINT64_MAX;
}

uint64_t fgw_allowance_back_ns(const struct fgw_grantee *grantee, uint64_t now_ns)
{
    const struct fgw_rate rate = rate_of(grantee);
    const uint64_t back_ns = is_limit(rate) ? fgw_allowance_return_ns(word_of(grantee), rate) : 0;
    return back_ns > now_ns ? back_ns : 0;
}
