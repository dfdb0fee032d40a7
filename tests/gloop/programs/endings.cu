/*
 * Host loops that end, and what they leave; what the host refuses them. endings exit LARGE FIFO: forceExit with
 * requests out, and the descriptors before and after. endings send CALL: a send that waits while its socket is closed
 * by fs::close or net::close, and what came to the next client. endings loops: host loops beside and after each other.
 * endings turns: launches of many threads by one host loop. endings reset: after a reset of the device. endings device:
 * the calling thread's device. endings descriptors: with none left. endings threads, words, addresses, naps: as the
 * functions of the C library below say.
 */
#include <arpa/inet.h>
#include <cstdio>
#include <dirent.h>
#include <dlfcn.h>
#include <functional>
#include <gloop/gloop.cuh>
#include <map>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

using Loop = gloop::DeviceLoop<>;
namespace fs = gloop::fs;
namespace net = gloop::net;

namespace
{

std::atomic<int> nr_threads_left{-1}; /* before there are no more; -1: there always are */
std::atomic<bool> has_no_words{false};
std::atomic<int> nr_long_naps{0}, nr_refused_naps{0};

using Find = void *(void *, const char *);

/* The C library's own dlsym, whose version is another one before glibc 2.34. */
Find *find_in_library()
{
    void *const newer = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return reinterpret_cast<Find *>(newer ? newer : dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
}

template <class Function> Function *real(const char *name, Function *)
{
    return reinterpret_cast<Function *>(find_in_library()(RTLD_NEXT, name));
}

} // namespace

extern "C" {

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *of) noexcept
{
    static const auto create = real("pthread_create", &pthread_create);
    Dl_info caller;
    const bool is_of_cpp =
        dladdr(__builtin_return_address(0), &caller) && std::strstr(caller.dli_fname, "libstdc++") != nullptr;
    if (is_of_cpp && nr_threads_left >= 0 && nr_threads_left-- == 0) {
        nr_threads_left = 0;
        return EAGAIN;
    }
    return create(thread, attributes, run, of);
}

/* As where the host's driver has no memory operations. */
void *dlsym(void *library, const char *name) noexcept
{
    static Find *const find = find_in_library();
    if (has_no_words && std::strcmp(name, "fairgv_yield_attach") == 0) {
        int (*const refuse)(unsigned long long) = [](unsigned long long) { return 801; };
        return reinterpret_cast<void *>(refuse);
    }
    return find(library, name);
}

/* "two.addresses" is 127.0.0.2, and then 127.0.0.1. */
int getaddrinfo(const char *name, const char *port, const addrinfo *hints, addrinfo **found)
{
    static const auto get = real("getaddrinfo", &getaddrinfo);
    if (std::strcmp(name, "two.addresses") != 0) {
        return get(name, port, hints, found);
    }
    return get("127.0.0.2", port, hints, found) || get("127.0.0.1", port, hints, &(*found)->ai_next);
}

int ppoll(pollfd *polled, nfds_t nr_polled, const timespec *time, const sigset_t *signals)
{
    static const auto poll = real("ppoll", &ppoll);
    const int result = poll(polled, nr_polled, time, signals);
    nr_refused_naps += result < 0 && errno == EINVAL;
    nr_long_naps += time && time->tv_nsec >= 999999999;
    return result;
}

} // extern "C"

namespace
{

int nr_descriptors()
{
    int nr = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) {
        nr++;
    }
    closedir(folder);
    return nr;
}

/* One thread for requests: what is behind the large read has not begun when all is over. */
void exit_with_requests(const gloop::Name large, const gloop::Name fifo)
{
    constexpr int nr_files = 8, bytes = 64 << 20;
    int *fds = nullptr;
    char *buffer = nullptr;
    cudaMallocHost(&fds, nr_files * sizeof(*fds));
    cudaMalloc(&buffer, bytes);
    gloop::Options options;
    options.io_threads = 1;
    const auto leave = [&] {
        gloop::HostLoop host(options);
        host.launch(1, 32, [=] __device__(Loop *loop) {
            for (int file = 0; file < nr_files; file++) {
                fs::open(loop, large.text, O_RDONLY, [=](Loop *, int fd) { fds[file] = fd; });
            }
        });
        host.launch(1, 32, [=] __device__(Loop *loop) {
            fs::read(loop, fds[0], 0, bytes, buffer, [](Loop *, int) {});
            /* To close what is no socket is answered at once, behind what was asked before. */
            net::close(loop, 9999, [=](Loop *loop, int) {
                for (int file = 0; file < nr_files; file++) {
                    fs::close(loop, fds[file], [](Loop *, int) {});
                }
                fs::open(loop, fifo.text, O_RDONLY, [](Loop *, int) {});
                net::close(loop, 9999, [](Loop *loop, int) { loop->forceExit(); });
            });
        });
    };
    leave(); /* what CUDA and FairGV open once */
    const int before = nr_descriptors();
    leave();
    std::printf("%d more\n", nr_descriptors() - before);
}

struct Listening {
    int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    Listening()
    {
        socklen_t bytes = sizeof(address);
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        bind(socket, reinterpret_cast<sockaddr *>(&address), bytes);
        listen(socket, 8);
        getsockname(socket, reinterpret_cast<sockaddr *>(&address), &bytes);
    }
    int port() const { return ntohs(address.sin_port); }
    int connected() const
    {
        const int client = ::socket(AF_INET, SOCK_STREAM, 0);
        connect(client, reinterpret_cast<const sockaddr *>(&address), sizeof(address));
        return client;
    }
};

/* More than all buffers of a connection take: it is not sent before the first client reads, which it never does. */
void send_and_close(bool is_by_fs, long long *results)
{
    constexpr unsigned long long bytes = 64 << 20;
    const Listening listening;
    const int socket = listening.socket, first = listening.connected(), second = listening.connected();
    char *data = nullptr;
    cudaMalloc(&data, bytes);
    {
        gloop::HostLoop host;
        host.launch(1, 32, [=] __device__(Loop *loop) {
            net::accept(loop, socket, [=](Loop *loop, int one) {
                net::send(loop, one, bytes, data, [=](Loop *, long long result) { results[0] = result; });
                net::receive(loop, one, bytes, data, [=](Loop *, long long result) { results[1] = result; });
                const auto go_on = [=](Loop *loop, int result) {
                    results[2] = result;
                    net::accept(loop, socket, [=](Loop *, int two) { results[3] = one == two; });
                };
                if (is_by_fs) {
                    fs::close(loop, one, go_on);
                } else {
                    net::close(loop, one, go_on);
                }
            });
        });
    }
    char byte;
    results[4] = recv(second, &byte, 1, 0);
    for (int number = 0; number < 5; number++) {
        std::printf("%lld ", results[number]);
    }
    std::printf("\n");
    close(first);
}

void launch(gloop::HostLoop &host, long long *results, unsigned nr_blocks = 3)
{
    host.launch(nr_blocks, 32, [=] __device__(Loop *loop) {
        loop->postTask([=](Loop *) {
            if (threadIdx.x == 0) {
                atomicAdd(reinterpret_cast<unsigned long long *>(results), 1ull);
            }
        });
    });
}

void make_loops(long long *results)
{
    for (int round = 0; round < 2; round++) {
        auto one = std::make_unique<gloop::HostLoop>(), two = std::make_unique<gloop::HostLoop>();
        std::thread beside([&] { launch(*one, results); });
        launch(*two, results);
        beside.join();
        one.reset();
        launch(*two, results);
    }
    std::printf("%lld\n", results[0]);
}

/* Grids of several sizes, of which a larger one takes other memory. */
void launch_from_threads(long long *results)
{
    gloop::HostLoop host;
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++) {
        threads.emplace_back([&host, results, number] {
            for (int each = 0; each < 8; each++) {
                launch(host, results + number, 1 + 20 * number);
            }
        });
    }
    for (int number = 0; number < 4; number++) {
        threads[number].join();
        std::printf("%lld ", results[number]);
    }
    std::printf("\n");
}

/* No memory of the program's is the word's. */
void reset_device()
{
    cudaFree(nullptr);
    for (int round = 0; round < 2; round++) {
        auto host = std::make_unique<gloop::HostLoop>();
        const void *word = gloop::detail::word_of(0).get();
        void *mine[8];
        int nr_words = 0;
        for (void *&each : mine) {
            cudaMalloc(&each, sizeof(int));
            nr_words += each == word;
        }
        host.reset();
        std::printf("%d %d\n", nr_words, cudaDeviceReset());
    }
}

void keep_device(long long *results)
{
    gloop::HostLoop host;
    int device = -1;
    cudaSetDevice(1);
    launch(host, results);
    cudaGetDevice(&device);
    std::printf("%d\n", device);
}

void lack_threads()
{
    for (int nr : {0, 1, 3}) {
        nr_threads_left = nr;
        try {
            gloop::HostLoop host;
        } catch (const gloop::Error &error) {
            std::printf("%s\n", error.what());
        }
    }
    nr_threads_left = -1;
    sigset_t signals;
    pthread_sigmask(SIG_SETMASK, nullptr, &signals);
    std::printf("%d\n", sigismember(&signals, SIGTERM));
}

/* Of the two that it takes, and afterwards. */
void lack_descriptors()
{
    gloop::Options options;
    options.cache_bytes = 0;
    std::make_unique<gloop::HostLoop>(options).reset(); /* what CUDA and FairGV open once */
    const int before = nr_descriptors(), next = dup(0);
    close(next);
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    for (int nr : {0, 1}) {
        const rlimit less = {rlim_t(next + nr), limit.rlim_max};
        setrlimit(RLIMIT_NOFILE, &less);
        try {
            gloop::HostLoop host(options);
        } catch (const gloop::Error &error) {
            std::printf("%s\n", error.what());
        }
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    std::printf("%d more\n", nr_descriptors() - before);
}

void lack_words(long long *results)
{
    has_no_words = true;
    gloop::HostLoop host;
    launch(host, results);
    std::printf("%lld\n", results[0]);
}

void try_addresses(long long *results)
{
    const Listening listening;
    const int port = listening.port();
    gloop::HostLoop host;
    host.launch(1, 32, [=] __device__(Loop *loop) {
        const auto store = [=](int number) { return [=](Loop *, long long result) { results[number] = result; }; };
        net::connect(loop, "two.addresses", port, store(0));
        net::connect(loop, "two.addresses", 1, store(1));
        net::connect(loop, "two.addresses", port + 65536, store(2));
        net::bind(loop, "127.0.0.1", -1, store(3));
    });
    std::printf("%d %lld %lld %lld\n", results[0] > 0, results[1], results[2], results[3]);
}

/* A kernel that stays for as long as nobody comes, and naps as long as they get. */
void nap_for_long()
{
    const Listening listening;
    const int socket = listening.socket;
    std::thread client([&] {
        while (nr_long_naps == 0 && nr_refused_naps == 0) {
            usleep(1000);
        }
        close(listening.connected());
    });
    gloop::Options options;
    options.idle_us = 4'000'000'000;
    gloop::HostLoop host(options);
    host.launch(1, 32, [=] __device__(Loop *loop) { net::accept(loop, socket, [](Loop *, int) {}); });
    client.join();
    std::printf("%d refused\n", nr_refused_naps.load());
}

} // namespace

int main(int nr_arguments, char **arguments)
{
    const std::string what = nr_arguments > 1 ? arguments[1] : "";
    long long *results = nullptr;
    if (what != "reset") {
        cudaMallocHost(&results, 8 * sizeof(*results));
        std::fill_n(results, 8, 0);
    }
    const std::map<std::string, std::function<void()>> all = {
        {"exit", [=] { exit_with_requests(gloop::Name(arguments[2]), gloop::Name(arguments[3])); }},
        {"send", [=] { send_and_close(std::string(arguments[2]) == "fs", results); }},
        {"loops", [=] { make_loops(results); }},
        {"turns", [=] { launch_from_threads(results); }},
        {"reset", reset_device},
        {"device", [=] { keep_device(results); }},
        {"threads", lack_threads},
        {"descriptors", lack_descriptors},
        {"words", [=] { lack_words(results); }},
        {"addresses", [=] { try_addresses(results); }},
        {"naps", nap_for_long},
    };
    try {
        all.at(what)();
    } catch (const gloop::Error &error) {
        std::printf("%s\n", error.what());
    }
    return 0;
}
