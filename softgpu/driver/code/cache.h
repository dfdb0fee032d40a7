/*
 * The folder of compiled images, which belongs to the user alone. What is loaded from there runs in this process, so a
 * folder or file that somebody else could have written is not used.
 *
 * A killed process leaves only temporary files, which are swept up later. When the folder outgrows its bound, what was
 * used longest ago goes first.
 */
#ifndef SOFTGPU_CACHE_H
#define SOFTGPU_CACHE_H

#include <limits.h>
#include <stdbool.h>

/* Of the name that all files of one image begin with, and its end. */
#define SGP_CACHE_KEY_CHARACTERS 33

/* The folder, made if need be: the one that FAIRGV_SOFTGPU_CACHE names, else the user's. False: there is none to trust.
 */
bool sgp_cache_directory(char directory[PATH_MAX]);
/* Whether a file is a whole one of this user's that nobody else may write. */
bool sgp_cache_is_trusted(const char *path);
/* Removes what was used longest ago, as far as the bound asks (FAIRGV_SOFTGPU_CACHE_BYTES), but none of the image
 * `keep`. */
void sgp_cache_bound(const char *directory, const char *keep);

#endif
