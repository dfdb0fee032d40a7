/* Sockets on the host: jobs that wait for them, in the order in which they came. One thread only. */
#ifndef GLOOP_SOCKETS_CUH
#define GLOOP_SOCKETS_CUH

#include <deque>
#include <map>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job.cuh"

namespace gloop
{
namespace detail
{

/* A socket for the first address of a name that takes it, or minus errno. May wait for a name server. */
inline int socket_of(const std::string &name, int port, bool is_listening)
{
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (is_listening ? AI_PASSIVE : 0);
    if (getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
        return -EADDRNOTAVAIL;
    }
    int result = -EADDRNOTAVAIL;
    const int on = 1;
    for (const addrinfo *each = found; each && result < 0; each = each->ai_next) {
        const int fd = socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        const bool is_there = is_listening
                                  ? bind(fd, each->ai_addr, each->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0
                                  : connect(fd, each->ai_addr, each->ai_addrlen) == 0 || errno == EINPROGRESS;
        result = is_there ? fd : -errno;
        if (fd >= 0 && !is_there) {
            ::close(fd);
        }
    }
    freeaddrinfo(found);
    return result;
}

class Sockets
{
  public:
    static constexpr std::int64_t would_wait = -EAGAIN;

    Sockets() : epoll_(epoll_create1(EPOLL_CLOEXEC)), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
    {
        epoll_event event = {};
        event.events = EPOLLIN;
        event.data.fd = bell_;
        if (epoll_ < 0 || bell_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, bell_, &event) != 0) {
            throw Error("gloop: no epoll: error " + std::to_string(errno));
        }
    }
    ~Sockets()
    {
        ::close(epoll_);
        ::close(bell_);
    }
    Sockets(const Sockets &) = delete;
    Sockets &operator=(const Sockets &) = delete;

    /* Ends `sleep`. By any thread. */
    void ring() const
    {
        const std::uint64_t one = 1;
        (void)!write(bell_, &one, sizeof(one));
    }

    /* Until a socket has news, the bell rings or the time is up; null: for ever. */
    void sleep(const timespec *time) const
    {
        pollfd each = {epoll_, POLLIN, 0};
        ppoll(&each, 1, time, nullptr);
    }

    /* `answer(job, result)`, at once or from `look`. */
    template <class Answer> void serve(Job &&job, const Answer &answer)
    {
        const int fd = job.line.fd;
        if (job.line.call == Call::end || job.line.call == Call::unbind) {
            close_socket(fd, answer);
            answer(std::move(job), 0);
            return;
        }
        std::deque<Job> &jobs = waiting_[fd].jobs[is_outward(job)];
        jobs.push_back(std::move(job));
        if (jobs.size() == 1) {
            serve_front(jobs, answer);
        }
        arm(fd, answer);
    }

    template <class Answer> void look(const Answer &answer)
    {
        epoll_event events[64];
        const int nr_events = epoll_wait(epoll_, events, 64, 0);
        for (int event = 0; event < nr_events; event++) {
            const int fd = events[event].data.fd;
            std::uint64_t rung;
            if (fd == bell_) {
                (void)!read(bell_, &rung, sizeof(rung));
                continue;
            }
            for (std::deque<Job> &jobs : waiting_[fd].jobs) {
                serve_front(jobs, answer);
            }
            arm(fd, answer);
        }
    }

    void drop_all()
    {
        const auto nobody = [](Job &&, std::int64_t) {};
        while (!waiting_.empty()) {
            cancel(waiting_.begin()->first, nobody);
        }
    }

  private:
    struct Waiting {
        std::deque<Job> jobs[2]; /* for what comes, and for what goes */
        std::uint32_t armed = 0;
    };

    static bool is_outward(const Job &job) { return job.line.call == Call::send || job.line.call == Call::connect; }

    template <class Answer> static void serve_front(std::deque<Job> &jobs, const Answer &answer)
    {
        std::int64_t result = 0;
        while (!jobs.empty() && (result = attempt(jobs.front())) != would_wait) {
            Job job = std::move(jobs.front());
            jobs.pop_front();
            answer(std::move(job), result);
        }
    }

    static std::int64_t attempt(Job &job)
    {
        const int fd = job.line.fd, on = 1;
        pollfd ready = {fd, short(is_outward(job) ? POLLOUT : POLLIN), 0};
        if (poll(&ready, 1, 0) == 0) {
            return would_wait;
        }
        std::int64_t result = 0;
        if (job.line.call == Call::connect) {
            int error = 0;
            socklen_t bytes = sizeof(error);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 ? -errno : error ? -error : fd;
        }
        if (job.line.call == Call::accept) {
            result = accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            setsockopt(int(result), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        } else if (job.line.call == Call::receive) {
            job.data.resize(std::min<std::size_t>(job.line.bytes, Copier::bytes_at_once));
            result = recv(fd, job.data.data(), job.data.size(), MSG_DONTWAIT);
        } else {
            while (result >= 0 && job.sent < job.line.bytes) {
                const auto *page = reinterpret_cast<const unsigned char *>(job.line.page);
                const unsigned char *data = page ? page : job.data.data();
                result = send(fd, data + job.sent, job.line.bytes - job.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
                job.sent += std::max<std::int64_t>(result, 0);
            }
            result = result < 0 ? result : std::int64_t(job.line.bytes);
        }
        return result < 0 ? -errno : result;
    }

    template <class Answer> void arm(int fd, const Answer &answer)
    {
        const auto found = waiting_.find(fd);
        const std::uint32_t wanted =
            (found->second.jobs[0].empty() ? 0u : EPOLLIN) | (found->second.jobs[1].empty() ? 0u : EPOLLOUT);
        epoll_event event = {};
        event.events = wanted;
        event.data.fd = fd;
        const int change = !wanted ? EPOLL_CTL_DEL : found->second.armed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        const bool is_changed = wanted == found->second.armed || epoll_ctl(epoll_, change, fd, &event) == 0;
        found->second.armed = wanted;
        if (!is_changed || !wanted) {
            cancel(fd, answer);
        }
    }

    template <class Answer> void cancel(int fd, const Answer &answer)
    {
        Waiting waiting = std::move(waiting_[fd]);
        waiting_.erase(fd);
        if (waiting.armed) {
            epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
        }
        for (std::deque<Job> &jobs : waiting.jobs) {
            for (Job &job : jobs) {
                answer(std::move(job), -ECANCELED);
            }
        }
    }

    template <class Answer> void close_socket(int fd, const Answer &answer)
    {
        cancel(fd, answer);
        ::close(fd);
    }

    int epoll_, bell_;
    std::map<int, Waiting> waiting_;
};

} // namespace detail
} // namespace gloop

#endif
