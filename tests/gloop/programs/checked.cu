/* With -DGLOOP_CHECK: checked same, and checked different, whose line in this file is told. */
#include <cstdio>
#include <gloop/gloop.cuh>
#include <string>

using Loop = gloop::DeviceLoop<>;

int main(int nr_arguments, char **arguments)
{
    const bool is_same = nr_arguments > 1 && std::string(arguments[1]) == "same";
    unsigned *sum = nullptr;
    cudaMallocHost(&sum, sizeof(*sum));
    *sum = 0;
    try {
        gloop::HostLoop host;
        host.launch(2, 64, [=] __device__(Loop *loop) {
            const unsigned value = is_same ? 7 : threadIdx.x / 63;
            const char letter = 'x'; /* beside unused bytes */
            const double third = 1.0 / 3;
            loop->postTask([=](Loop *) { atomicAdd(sum, value + (letter == 'x') + (third < 1)); });
        });
        std::printf("sum %u\n", *sum);
    } catch (const gloop::Error &error) {
        std::printf("%s\n", error.what());
    }
    return 0;
}
