/* refusals WHAT [PORT]: what cannot be done, or ends a kernel, and the exception that tells so. */
#include <arpa/inet.h>
#include <cstdio>
#include <functional>
#include <gloop/gloop.cuh>
#include <map>
#include <string>
#include <sys/wait.h>
#include <thread>

using Loop = gloop::DeviceLoop<>;

namespace
{

void launch_nothing(unsigned blocks, unsigned threads, std::size_t shared_bytes)
{
    gloop::HostLoop host;
    host.launchWithSharedMemory(blocks, threads, shared_bytes, [=] __device__(Loop *) {});
}

void launch_beyond_bounds()
{
    gloop::HostLoop host;
    host.launch<gloop::Shared, gloop::Bounds<64, 2>>(1, 96, [=] __device__(Loop *) {});
}

/* An error of before that the program has not asked for is none of the launch. */
void launch_behind_an_error()
{
    gloop::HostLoop host;
    void *nothing;
    (void)cudaMalloc(&nothing, std::size_t(1) << 60);
    host.launch(4, 64, [=] __device__(Loop *) {});
    throw gloop::Error::of("launched; before that ", cudaGetErrorName(cudaGetLastError()));
}

/* Another thread has the first device, and the loop has its own. */
void launch_in_another_thread()
{
    gloop::HostLoop host;
    std::thread([&] { host.launch(4, 64, [=] __device__(Loop *) {}); }).join();
    throw gloop::Error::of("launched elsewhere");
}

/* For what captures a name that a lambda around it made, nvcc makes no kernel. */
void launch_with_a_name()
{
    gloop::HostLoop host;
    [&host, number = 1] { host.launch(1, 32, [=] __device__(Loop *) { printf("%d", number); }); }();
}

/* From a callback, which has a slot while it runs, or from the entry, which has none. The next point tells. */
void post(int nr, bool is_entry)
{
    gloop::HostLoop host;
    int *nr_run = nullptr;
    cudaMallocHost(&nr_run, sizeof(*nr_run));
    *nr_run = 0;
    host.launch(1, 64, [=] __device__(Loop *loop) {
        const auto post_all = [=](Loop *loop) {
            for (int number = 0; number < nr; number++) {
                loop->postTask([=](Loop *) { *nr_run += threadIdx.x == 0; });
            }
        };
        if (is_entry) {
            post_all(loop);
        } else {
            loop->postTask(post_all);
        }
    });
    std::printf("run %d\n", *nr_run);
}

void post_much_per_thread()
{
    gloop::HostLoop host;
    host.launch(1, 64, [=] __device__(Loop *loop) {
        const unsigned long long mine[3] = {threadIdx.x, 1, 2};
        loop->postTaskPerThread([=](Loop *) { printf("%llu", mine[threadIdx.x % 3]); });
    });
}

__device__ int word;

void keep_global()
{
    gloop::HostLoop host;
    host.launch(1, 64, [=] __device__(Loop *loop) { loop->keep(&word, 8); });
}

void fault()
{
    gloop::HostLoop host;
    host.launch(1, 64, [=] __device__(Loop *loop) {
        gloop::fs::open(loop, "/dev/zero", O_RDONLY, [=](Loop *, int fd) { *reinterpret_cast<int *>(8) = fd; });
    });
}

/* More than the buffer has: the driver does not copy that. */
void read_too_much()
{
    char *buffer = nullptr;
    cudaMalloc(&buffer, 4096);
    gloop::HostLoop host;
    host.launch(3, 64, [=] __device__(Loop *loop) {
        gloop::fs::open(loop, "/proc/self/exe", O_RDONLY, [=](Loop *loop, int fd) {
            gloop::fs::read(loop, fd, 0, 1 << 30, buffer, [=](Loop *, int) {});
        });
    });
}

void launch_in_child()
{
    gloop::HostLoop host;
    std::fflush(stdout);
    const pid_t child = fork();
    if (child != 0) {
        int status = 0;
        waitpid(child, &status, 0);
        host.launch(1, 32, [=] __device__(Loop *) {});
        std::printf("parent goes on %d\n", status);
        return;
    }
    try {
        host.launch(1, 32, [=] __device__(Loop *) {});
    } catch (const gloop::Error &error) {
        const std::string text = error.what();
        std::printf("%d %s\n", text.find(std::to_string(getppid())) != text.npos,
                    text.substr(text.find("CUDA")).c_str());
    }
}

void wait_for_anybody(int port)
{
    gloop::HostLoop host;
    int *result = nullptr;
    cudaMallocHost(&result, sizeof(*result));
    std::thread other([&] {
        while (host.statistics().nr_requests < 2 || host.statistics().is_running) {
            usleep(1000);
        }
        std::printf("kernel has ended\n");
        std::fflush(stdout);
        const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        connect(socket, reinterpret_cast<sockaddr *>(&address), sizeof(address));
        close(socket);
    });
    host.launch(1, 32, [=] __device__(Loop *loop) {
        gloop::net::bind(loop, "127.0.0.1", port, [=](Loop *loop, int socket) {
            gloop::net::accept(loop, socket, [=](Loop *, int connection) { *result = connection; });
        });
    });
    other.join();
    std::printf("accepted %d\n", *result >= 0);
}

} // namespace

int main(int nr_arguments, char **arguments)
{
    const std::string what = nr_arguments > 1 ? arguments[1] : "";
    const int port = nr_arguments > 2 ? std::stoi(arguments[2]) : 0;
    const std::map<std::string, std::function<void()>> all = {
        {"threads", [] { launch_nothing(1, 1500, 0); }},
        {"shared", [] { launch_nothing(1, 32, 10 << 20); }},
        {"blocks", [] { launch_nothing(0, 32, 0); }},
        {"bounds", launch_beyond_bounds},
        {"before", launch_behind_an_error},
        {"thread", launch_in_another_thread},
        {"made", launch_with_a_name},
        {"slots", [] { post(33, true); }},
        {"slots of a callback", [] { post(32, false); }},
        {"all slots", [] { post(32, true), post(31, false); }},
        {"own", post_much_per_thread},
        {"keep", keep_global},
        {"fault", fault},
        {"copy", read_too_much},
        {"name", [] { gloop::Name(std::string(256, 'n')); }},
        {"fork", launch_in_child},
        {"idle", [=] { wait_for_anybody(port); }},
    };
    try {
        all.at(what)();
    } catch (const gloop::Error &error) {
        std::printf("%s\n", error.what());
    }
    return 0;
}
