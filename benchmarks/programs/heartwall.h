/*
 * Follows points of a heart's wall through the frames of an ultrasound film. For each point a template, what surrounded
 * it so far, is correlated with the new frame's window around its last place; where the normalised correlation is best,
 * the point is now, and the template takes in some of what is there.
 */
#ifndef BENCHMARKS_PROGRAMS_HEARTWALL_H
#define BENCHMARKS_PROGRAMS_HEARTWALL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HEARTWALL_FRAME = 400, /* pixels of each of these squares' edges */
    HEARTWALL_TEMPLATE = 17,
    HEARTWALL_WINDOW = 33,
    HEARTWALL_CONVOLVED = HEARTWALL_WINDOW + HEARTWALL_TEMPLATE - 1, /* all places where the two overlap */
    HEARTWALL_PADDED = HEARTWALL_CONVOLVED + HEARTWALL_TEMPLATE - 1, /* the window with zeros all around */
    HEARTWALL_REACH = (HEARTWALL_WINDOW - HEARTWALL_TEMPLATE) / 2,   /* pixels that a point may move in one frame */
    HEARTWALL_TEMPLATE_PIXELS = HEARTWALL_TEMPLATE * HEARTWALL_TEMPLATE,
};

#define HEARTWALL_KEPT 0.75f /* how much of a template stays in each frame */

/* What is known of one point, and in the end of the frame. */
struct heartwall_point {
    int32_t row, column; /* the pixel at the template's centre */
    float correlation;   /* of template and frame there, before the template took it in; 1 is equality */
    float template_pixels[HEARTWALL_TEMPLATE_PIXELS];
};

/* One launch. Frame 0 has the points' places given and fills the templates; each later one moves the points. */
struct heartwall_frame {
    const float *pixels; /* HEARTWALL_FRAME x HEARTWALL_FRAME, 0 to about 1 */
    struct heartwall_point *points;
    int number, nr_points;
};

void heartwall_loops(const struct heartwall_frame *frame);

#ifdef __cplusplus
}
#endif

#endif
