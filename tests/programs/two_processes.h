/*
 * A program of two processes: it starts itself a second time, tells and hears things through a socket, and in the end
 * prints what the other one printed behind its own lines. Each process has its own driver: the second is another
 * program to it, not a fork.
 */
#ifndef TESTS_PROGRAMS_TWO_PROCESSES_H
#define TESTS_PROGRAMS_TWO_PROCESSES_H

#include <csignal>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* What a call said, which is forgotten. */
static inline const char *said(cudaError_t error)
{
    cudaGetLastError();
    return cudaGetErrorName(error);
}

__global__ void add(int *values, size_t nr, int what)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < nr; i += gridDim.x * (size_t)blockDim.x) {
        values[i] += what;
    }
}

class Other
{
  public:
    explicit Other(int socket) : socket_(socket) {}

    void tell(const void *bytes, size_t nr, int descriptor = -1) const
    {
        char control[CMSG_SPACE(sizeof(int))] = {};
        iovec part = {const_cast<void *>(bytes), nr};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        if (descriptor >= 0) {
            message.msg_control = control;
            message.msg_controllen = sizeof(control);
            cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
        }
        if (sendmsg(socket_, &message, MSG_NOSIGNAL) != (ssize_t)nr) {
            std::printf("the other process does not hear\nFAIL\n");
            std::exit(1);
        }
    }

    /* False: the other process has ended. */
    bool hear(void *bytes, size_t nr, int *descriptor = nullptr) const
    {
        char control[CMSG_SPACE(sizeof(int))] = {};
        iovec part = {bytes, nr};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        if (recvmsg(socket_, &message, MSG_CMSG_CLOEXEC) != (ssize_t)nr) {
            return false;
        }
        if (descriptor != nullptr) {
            const cmsghdr *header = CMSG_FIRSTHDR(&message);
            *descriptor = -1;
            if (header != nullptr) {
                std::memcpy(descriptor, CMSG_DATA(header), sizeof(int));
            }
        }
        return true;
    }

    template <typename Value> void tell(const Value &value, int descriptor = -1) const
    {
        tell(&value, sizeof(value), descriptor);
    }

    template <typename Value> Value hear(int *descriptor = nullptr) const
    {
        Value value = {};
        if (!hear(&value, sizeof(value), descriptor)) {
            std::printf("the other process says nothing\nFAIL\n");
            std::exit(1);
        }
        return value;
    }

    /* Until it is the other's turn to have gone on. */
    void wait() const { hear<char>(); }

    void go_on() const { tell('.'); }

    bool is_gone() const
    {
        char nothing;
        return !hear(&nothing, 1);
    }

  private:
    int socket_;
};

struct Second {
    pid_t process = 0; /* 0: none, or its end was told */
    int socket = -1, output = -1;
};

static Second second_process;

/* What it printed, which is short enough to have stayed in the pipe, and how it ended. */
static void tell_of_second()
{
    const Second second = second_process;
    if (second.process == 0) {
        return;
    }
    second_process.process = 0;
    close(second.socket);
    std::printf("the second process:\n");
    char buffer[4096];
    for (ssize_t got = read(second.output, buffer, sizeof(buffer)); got > 0;
         got = read(second.output, buffer, sizeof(buffer))) {
        std::fwrite(buffer, 1, (size_t)got, stdout);
    }
    int status = 0;
    waitpid(second.process, &status, 0);
    std::printf("it ended by %s %d\n", WIFSIGNALED(status) ? "signal" : "exit",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* main() of such a program. `first` says whether all is right; the second process ends as `second` lets it. */
static int two_processes(int argc, char **argv, bool (*first)(const Other &other), void (*second)(const Other &other))
{
    if (argc == 3 && std::strcmp(argv[1], "second") == 0) {
        second(Other(std::atoi(argv[2])));
        return 0;
    }
    int sockets[2], output[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0 || pipe(output) != 0) {
        return verdict(false);
    }
    second_process = {fork(), sockets[0], output[0]};
    if (second_process.process == 0) {
        const std::string number = std::to_string(sockets[1]);
        close(sockets[0]);
        dup2(output[1], STDOUT_FILENO);
        execl("/proc/self/exe", argv[0], "second", number.c_str(), nullptr);
        _exit(127);
    }
    close(sockets[1]);
    close(output[1]);
    std::atexit(tell_of_second); /* of one that failed, too */
    const bool is_right = first(Other(sockets[0]));
    tell_of_second();
    return verdict(is_right);
}

/* The last line of the second process, which dies with all that it has. */
[[noreturn]] static inline void die(const char *last)
{
    std::printf("%s\n", last);
    std::fflush(stdout);
    kill(getpid(), SIGKILL);
    std::abort();
}

#endif
