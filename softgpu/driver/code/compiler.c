/*
 * The compiler as a child process, with limits: no shell, no signals and no files of the program's, an environment
 * without what would make the child load the program's libraries or modules. One line of its error output is kept: it
 * names the CUDA error and the reason.
 */
#include "code/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/driver.h"
#include "base/view.h"
#include "code/compiler_command.h"

#define MAX_WORDS          32
#define MAX_OPTIONS        10
#define FIRST_INHERITED_FD 3u
/* Of one compiler process: text that was written to take more (one line took 8.4 GiB) ends here. Four
 * programs of the tests (textures, surfaces, matrix_mul, linked) compile in a fifth of the memory. */
#define MAX_MEMORY_BYTES (UINT64_C(6) << 30)
#define MAX_CPU_S        600u
/* Of what it writes: as much as the cache holds. */
#define MAX_FILE_BYTES   (UINT64_C(1) << 30)
#define TEXT_OF(number)  #number
#define TEXT_OF_VALUE(x) TEXT_OF(x)

/* At once, for one program: each takes every core already. */
#define MAX_COMPILERS 2u

extern char **environ;

static pthread_mutex_t compilers_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t compiler_ended = PTHREAD_COND_INITIALIZER;
static uint32_t nr_compilers;
/* A pipe that nobody writes to and that closes when this process ends, however it does. What compilers leave behind
 * ends with it, where this process runs kernels of others (view.h): they are to leave nothing. {-1, -1} elsewhere. */
static int alive[2] = {-1, -1};

/* Cuts the text in place. */
static size_t words_of(char *text, char *words[MAX_WORDS])
{
    size_t nr = 0;
    char *rest = NULL;

    for (char *word = strtok_r(text, " ", &rest); word && nr < MAX_WORDS - MAX_OPTIONS;
         word = strtok_r(NULL, " ", &rest)) {
        words[nr++] = word;
    }
    return nr;
}

static bool is_kept(const char *variable)
{
    static const char *const dropped[] = {"LD_PRELOAD=", "LD_LIBRARY_PATH=", "LD_AUDIT=", "PYTHON"};

    for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++) {
        if (!strncmp(variable, dropped[i], strlen(dropped[i]))) {
            return false;
        }
    }
    return true;
}

static char **environment_new(void)
{
    size_t nr = 0, kept = 0;
    char **variables;

    while (environ && environ[nr]) { /* clearenv() leaves none */
        nr++;
    }
    variables = calloc(nr + 2, sizeof(*variables));
    if (!variables) {
        return NULL;
    }
    for (size_t i = 0; i < nr; i++) {
        if (is_kept(environ[i])) {
            variables[kept++] = environ[i];
        }
    }
    variables[kept] = (char *)sgp_compiler_python_path();
    return variables;
}

/* Under whatever limit there is already. */
static bool limit(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit now;

    if (getrlimit(resource, &now)) {
        return false;
    }
    now.rlim_max = now.rlim_max < most ? now.rlim_max : most;
    now.rlim_cur = now.rlim_cur < now.rlim_max ? now.rlim_cur : now.rlim_max;
    return !setrlimit(resource, &now);
}

/* In the forked child, of a program with threads: system calls alone. Returns only if there is no such command. */
static void compiler_become(char *const words[], char **variables, int error_fd, pid_t parent)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int input = alive[0] >= 0 ? alive[0] : nothing;
    sigset_t no_signals;

    /* It ends with the thread that waits for it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent || !limit(RLIMIT_AS, MAX_MEMORY_BYTES) ||
        !limit(RLIMIT_CPU, MAX_CPU_S) || !limit(RLIMIT_FSIZE, MAX_FILE_BYTES) ||
        !limit(RLIMIT_CORE, 1)) { /* with 0 a handler of the host's gets it */
        return;
    }
    for (int signal = 1; signal < NSIG; signal++) {
        sigaction(signal, &standard, NULL); /* refused for some */
    }
    sigemptyset(&no_signals);
    if (sigprocmask(SIG_SETMASK, &no_signals, NULL) || dup2(input, STDIN_FILENO) < 0 ||
        dup2(error_fd, STDOUT_FILENO) < 0 || dup2(error_fd, STDERR_FILENO) < 0 ||
        syscall(SYS_close_range, FIRST_INHERITED_FD, ~0u, 0u)) {
        return;
    }
    execvpe(words[0], words, variables);
}

/* 0, or why there is none. What goes wrong in the child looks as a command that is not found does to a shell. */
static int spawn(pid_t *child, char *const words[], int error_fd)
{
    char **variables = environment_new();
    const char *text;
    pid_t parent = getpid();
    int failed;

    if (!variables) {
        return ENOMEM;
    }
    *child = fork();
    if (!*child) {
        compiler_become(words, variables, error_fd, parent);
        text = strerrordesc_np(errno); /* the one that allocates nothing */
        if (text && write(error_fd, text, strlen(text)) < 0) {
            _exit(write(STDERR_FILENO, text, strlen(text)) > 0 ? 127 : 126); /* that is where error_fd has gone */
        }
        _exit(127);
    }
    failed = *child < 0 ? errno : 0;
    free(variables);
    return failed;
}

/* The end of what the child says, until it closes its output. */
static void read_text(int fd, char *text, size_t bytes)
{
    char chunk[1024];
    size_t used = 0;
    ssize_t got;

    while ((got = read(fd, chunk, sizeof(chunk))) != 0) {
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            break;
        }
        if ((size_t)got >= bytes - used) {
            size_t keep = (bytes - 1) / 2 < used ? (bytes - 1) / 2 : used;

            memmove(text, text + used - keep, keep);
            used = keep;
        }
        size_t take = (size_t)got < bytes - 1 - used ? (size_t)got : bytes - 1 - used;

        memcpy(text + used, chunk, take);
        used += take;
    }
    while (used && (text[used - 1] == '\n' || text[used - 1] == ' ')) {
        used--;
    }
    text[used] = '\0';
}

static int wait_for(pid_t child)
{
    int status;
    pid_t ended;

    do {
        ended = waitpid(child, &status, 0);
    } while (ended < 0 && errno == EINTR);
    /* A program that ignores SIGCHLD, or waits for any child, takes the status away: the object tells then. */
    return ended == child ? status : 0;
}

/* The CUresult that the compiler names, whatever else it says. */
static CUresult result_named_in(const char *text)
{
    const char *name = strstr(text, "CUDA_ERROR_");
    size_t length = name ? strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") : 0;

#define MATCH(error, number, words)                                                                                    \
    if (length == sizeof(#error) - 1 && !strncmp(name, #error, length))                                                \
        return (CUresult)(number);
    if (name) {
        FGV_RESULTS(MATCH)
    }
#undef MATCH
    return CUDA_ERROR_INVALID_PTX;
}

static void append_options(char **words, const struct sgp_compiler_task *task)
{
    const char *const options[MAX_OPTIONS] = {
        "--image",
        task->input,
        "--capability",
        TEXT_OF_VALUE(SGP_CAPABILITY),
        "--output",
        task->output,
        task->quick ? "--quick" : task->mode,
        task->quick,
        task->quick ? task->mode : NULL,
    };

    for (size_t i = 0; i < MAX_OPTIONS; i++) {
        words[i] = (char *)options[i];
    }
}

static bool is_made(const struct sgp_compiler_task *task)
{
    struct stat made;

    return (task->mode && strcmp(task->mode, "--link")) || stat(task->output, &made) == 0 ||
           (task->quick && stat(task->quick, &made) == 0);
}

static const char *last_line(const char *text)
{
    const char *line = strrchr(text, '\n');

    return line ? line + 1 : text;
}

static void cannot_start(const char *command, const char *reason, char *error_text, size_t error_text_bytes)
{
    snprintf(error_text, error_text_bytes, "cannot run the compiler %s%s%s", command, *reason ? ": " : "", reason);
    sgp_log("compile", "%s", error_text);
}

static CUresult run(const struct sgp_compiler_task *task, char *error_text, size_t error_text_bytes)
{
    char text[2048] = "", command[PATH_MAX];
    char *words[MAX_WORDS] = {NULL};
    int pipe_fds[2], failed, status;
    size_t nr;
    pid_t child;

    if (!sgp_compiler_command(command, sizeof(command)) || !(nr = words_of(command, words))) {
        return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    }
    append_options(&words[nr], task);
    if (pipe2(pipe_fds, O_CLOEXEC)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    failed = spawn(&child, words, pipe_fds[1]);
    close(pipe_fds[1]);
    if (failed) {
        close(pipe_fds[0]);
        cannot_start(words[0], strerror(failed), error_text, error_text_bytes);
        return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    }
    read_text(pipe_fds[0], text, sizeof(text));
    close(pipe_fds[0]);
    status = wait_for(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && is_made(task)) {
        return CUDA_SUCCESS;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !*text) {
        snprintf(error_text, error_text_bytes, "%s: the compiled code is gone", task->output);
        sgp_log("compile", "%s", error_text);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (WIFEXITED(status) && !strstr(text, "CUDA_ERROR_")) { /* once it runs it names an error, whatever goes wrong */
        cannot_start(words[0], last_line(text), error_text, error_text_bytes);
        return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    }
    snprintf(error_text, error_text_bytes, "%s", text);
    sgp_log("compile", "%s", text);
    return result_named_in(text);
}

CUresult sgp_compiler_run(const struct sgp_compiler_task *task, char *error_text, size_t error_text_bytes)
{
    bool is_ready;
    CUresult result;

    pthread_mutex_lock(&compilers_lock);
    while (nr_compilers == MAX_COMPILERS) {
        pthread_cond_wait(&compiler_ended, &compilers_lock);
    }
    nr_compilers++;
    is_ready = !sgp_view_is_walled() || alive[0] >= 0 || !pipe2(alive, O_CLOEXEC);
    pthread_mutex_unlock(&compilers_lock);
    result = !is_ready ? CUDA_ERROR_OPERATING_SYSTEM : run(task, error_text, error_text_bytes);
    pthread_mutex_lock(&compilers_lock);
    nr_compilers--;
    pthread_cond_signal(&compiler_ended);
    pthread_mutex_unlock(&compilers_lock);
    return result;
}
