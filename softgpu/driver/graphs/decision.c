/* Conditional nodes of what is instantiated: see decision.h. */
#include "graphs/decision.h"

#include <stdlib.h>

#include "stream/queue.h"
#include "stream/stream.h"

struct decision_command {
    struct sgp_command command;
    struct sgp_decision *decision;
};

static const struct sgp_body_ops *ops;

void sgp_decision_set_ops(const struct sgp_body_ops *given)
{
    ops = given;
}

CUresult sgp_decision_new(struct CUctx_st *context, struct sgp_condition *condition, CUgraphConditionalNodeType type,
                          unsigned int nr_bodies, struct sgp_decision **made)
{
    struct sgp_decision *decision = calloc(1, sizeof(*decision));

    if (decision) {
        decision->bodies = calloc(nr_bodies, sizeof(struct CUgraphExec_st *));
        decision->aside = sgp_stream_new(context, CU_STREAM_NON_BLOCKING, 0);
    }
    if (!decision || !decision->bodies || !decision->aside) {
        if (decision && decision->aside) {
            sgp_stream_end(decision->aside);
        }
        free(decision ? decision->bodies : NULL);
        free(decision);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sgp_object_keep(decision->aside);
    sgp_condition_keep(condition);
    decision->nr_references = 1;
    decision->condition = condition;
    decision->type = type;
    decision->nr_bodies = nr_bodies;
    *made = decision;
    return CUDA_SUCCESS;
}

void sgp_decision_release(struct sgp_decision *decision)
{
    if (--decision->nr_references) {
        return;
    }
    for (unsigned int i = 0; i < decision->nr_bodies; i++) {
        if (decision->bodies[i]) {
            ops->end(decision->bodies[i]);
        }
    }
    if (sgp_object_is(decision->aside, SGP_STREAM)) { /* else it went with its context */
        sgp_stream_end(decision->aside);
    }
    sgp_object_release(decision->aside);
    sgp_condition_release(decision->condition);
    free(decision->bodies);
    free(decision);
}

/* NULL: none. */
static const struct CUgraphExec_st *chosen(const struct sgp_decision *decision)
{
    const unsigned int value = sgp_condition_value(decision->condition);

    if (decision->type == CU_GRAPH_COND_TYPE_SWITCH) {
        return value < decision->nr_bodies ? decision->bodies[value] : NULL;
    }
    if (value) {
        return decision->bodies[0];
    }
    return decision->nr_bodies > 1 ? decision->bodies[1] : NULL;
}

static CUresult decide(struct sgp_command *command)
{
    const struct sgp_decision *decision = ((struct decision_command *)command)->decision;
    const struct CUgraphExec_st *body;
    CUresult result = CUDA_SUCCESS;
    bool is_over;

    sgp_lock();
    do {
        body = chosen(decision);
        if (body) {
            result = ops->queue(body, decision->aside);
            sgp_queue_wait(decision->aside, decision->aside->nr_submitted);
        }
        is_over =
            !body || decision->type != CU_GRAPH_COND_TYPE_WHILE || result || decision->aside->object.context->error;
    } while (!is_over);
    sgp_unlock();
    return result;
}

static void decided(struct sgp_command *command)
{
    sgp_decision_release(((struct decision_command *)command)->decision);
    free(command);
}

CUresult sgp_decision_submit(struct sgp_decision *decision, struct CUstream_st *stream)
{
    struct decision_command *command = calloc(1, sizeof(*command));
    CUresult result;

    if (!command) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *command = (struct decision_command){.command = {.run = decide, .finish = decided}, .decision = decision};
    decision->nr_references++;
    result = sgp_queue_submit(stream, &command->command, NULL);
    return result;
}
