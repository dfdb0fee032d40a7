/* Does not compile: callbacks that capture too much, and what has a copy constructor of its own. */
#include <gloop/gloop.cuh>

using Loop = gloop::DeviceLoop<>;

struct Large {
    char bytes[400];
};

struct Counted {
    int count = 0;
    __device__ Counted() {}
    __device__ Counted(const Counted &other) : count(other.count + 1) {}
};

int main()
{
    gloop::HostLoop host;
    host.launch(1, 1, [=] __device__(Loop *loop) {
        const Large large = {};
        loop->postTask([=](Loop *) { printf("%s", large.bytes); });
        const Counted counted;
        loop->postTask([=](Loop *) { printf("%d", counted.count); });
    });
    return 0;
}
