/* Requests on the host, and sockets with those that wait for them, in the order in which they came. By one thread. */
#pragma once

#include <functional>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <vector>

#include "files.cuh"

namespace gloop::detail
{
struct Job {
    size_t place; /* block * slots_per_block + slot */
    Line line;
    std::string name;
    std::vector<unsigned char> data; /* of a socket, without a page: what came, or is to be sent */
    size_t sent = 0;
    uint64_t number = 0; /* in the order in which they were seen */
    std::shared_ptr<addrinfo> addresses = nullptr;
    addrinfo *next = nullptr; /* of these, the first that was not tried */
    std::string address() const { return name.empty() ? "a connection" : name + ":" + std::to_string(line.mode); }
    unsigned char *bytes() { return line.page ? reinterpret_cast<unsigned char *>(line.page) : data.data(); }
};

/* A socket for the first address not tried that takes it, or minus errno. May wait for a name server. */
inline int socket_of(Job &job)
{
    if (job.line.mode < 0 || job.line.mode > 65535) { return -EINVAL; }
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    if (!job.addresses) {
        getaddrinfo(job.name.c_str(), std::to_string(job.line.mode).c_str(), &hints, &job.next);
        job.addresses.reset(job.next, freeaddrinfo);
    }
    int result = -EADDRNOTAVAIL;
    for (const int on = 1; job.next;) {
        const addrinfo &each = *job.next;
        job.next = each.ai_next;
        const int fd = socket(each.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
            (job.line.call == Call::bind ? bind(fd, each.ai_addr, each.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0
                                         : connect(fd, each.ai_addr, each.ai_addrlen) == 0 || errno == EINPROGRESS)) {
            return fd;
        }
        result = -errno;
        if (fd >= 0) { ::close(fd); }
    }
    return result;
}

class Sockets
{
  public:
    /* Who is told how a job ended: at once, or from `look`. */
    using Answer = std::function<void(Job &&, int64_t)>;

    explicit Sockets(Answer answer)
        : Sockets(std::move(answer), epoll_create1(EPOLL_CLOEXEC), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
    {
        if ((epoll_ | bell_) < 0 || !is_watched(bell_, EPOLLIN)) { throw Error::of("sockets: ", strerror(errno)); }
    }
    ~Sockets() { ::close(epoll_), ::close(bell_); }

    /* Ends `sleep`. By any thread. */
    void ring() const { eventfd_write(bell_, 1); }

    /* Until a socket has news, the bell rings or the time is up; null: for ever. */
    void sleep(const timespec *time) const
    {
        pollfd each = {epoll_, POLLIN, 0};
        ppoll(&each, 1, time, nullptr);
    }

    void serve(Job &&job)
    {
        const int fd = job.line.fd;
        if (job.line.call == Call::send && job.number < ended_[fd]) { return answer_(std::move(job), -ECANCELED); }
        waiting_.emplace(fd, std::move(job));
        serve_socket(fd);
    }

    /* Before a socket is closed: what was asked of it before goes to no other one that gets its number. */
    void end(const Job &job)
    {
        ended_[job.line.fd] = job.number;
        cancel(job.line.fd);
    }

    void look()
    {
        epoll_event events[64];
        for (int event = epoll_wait(epoll_, events, 64, 0) - 1; event >= 0; event--) {
            eventfd_t rung;
            const int fd = events[event].data.fd;
            if (fd == bell_) { eventfd_read(bell_, &rung); }
            serve_socket(fd); /* nobody waits for the bell */
        }
    }

    void cancel_all()
    {
        while (!waiting_.empty()) { cancel(waiting_.begin()->first); }
    }

  private:
    Sockets(Answer answer, int epoll, int bell) : answer_(std::move(answer)), epoll_(epoll), bell_(bell) {}
    static bool is_outward(const Job &job) { return job.line.call == Call::send || job.line.call == Call::connect; }

    /* In the order in which they came, in each direction. */
    void serve_socket(int fd)
    {
        bool is_blocked[2] = {false, false};
        for (auto each = waiting_.lower_bound(fd); each != waiting_.upper_bound(fd);) {
            bool &is_this_blocked = is_blocked[is_outward(each->second)];
            const int64_t result = is_this_blocked ? -EAGAIN : attempt(each->second);
            is_this_blocked = result == -EAGAIN;
            if (is_this_blocked) {
                ++each;
            } else {
                Job job = std::move(each->second);
                each = waiting_.erase(each);
                answer_(std::move(job), result);
            }
        }
        if (waiting_.count(fd) && !is_watched(fd, EPOLLIN | EPOLLOUT | EPOLLET)) { cancel(fd); }
    }

    /* Once for each socket: each change is told, and what is there already. */
    bool is_watched(int fd, uint32_t events) const
    {
        epoll_event event = {events, {}};
        event.data.fd = fd;
        return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
    }

    /* -EAGAIN: it has to wait. */
    static int64_t attempt(Job &job)
    {
        const Line &line = job.line;
        const int fd = line.fd, on = 1;
        pollfd ready = {fd, short(is_outward(job) ? POLLOUT : POLLIN), 0};
        int64_t result = 0;
        if (poll(&ready, 1, 0) == 0) { return -EAGAIN; }
        if (line.call == Call::connect) {
            int error = 0;
            socklen_t bytes = sizeof(error);
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            return error ? -error : fd;
        }
        if (line.call == Call::accept) {
            result = or_errno(accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
            setsockopt(int(result), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            return result;
        }
        if (line.call == Call::receive) {
            job.data.resize(line.page ? 0 : std::min<size_t>(line.bytes, Copier::bytes_at_once));
            return or_errno(recv(fd, job.bytes(), line.page ? line.bytes : job.data.size(), MSG_DONTWAIT));
        }
        while (result >= 0 && job.sent < line.bytes) {
            result = or_errno(send(fd, job.bytes() + job.sent, line.bytes - job.sent, MSG_DONTWAIT | MSG_NOSIGNAL));
            job.sent += std::max<int64_t>(result, 0);
        }
        return result < 0 ? result : int64_t(line.bytes);
    }

    void cancel(int fd)
    {
        for (auto each = waiting_.lower_bound(fd); each != waiting_.upper_bound(fd); each = waiting_.erase(each)) {
            answer_(std::move(each->second), -ECANCELED);
        }
    }

    const Answer answer_;
    const int epoll_, bell_;
    std::multimap<int, Job> waiting_;
    std::map<int, uint64_t> ended_; /* the last end of a socket of this number */
};
} // namespace gloop::detail
