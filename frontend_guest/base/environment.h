/* How the program was started. */
#ifndef FGV_BASE_ENVIRONMENT_H
#define FGV_BASE_ENVIRONMENT_H

/* A variable of the environment, or NULL. For a program that has thrown all of it away (clearenv) one of those that it
 * was started with. By one thread at a time. */
const char *fgv_environment(const char *name);

#endif
