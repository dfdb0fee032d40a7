/* A server that sends back what it gets. Of GPUnet's; each byte goes through the device. */
#include "serve.cuh"

struct echo_service {
    static constexpr size_t message_bytes = ECHO_BYTES, answer_bytes = ECHO_BYTES, shared_bytes = 0;
    static constexpr int nr_steps = 1;

    static __device__ void step(const unsigned char *message, unsigned char *answer, int)
    {
        server_copy(answer, message, ECHO_BYTES);
    }
};

int main(int argc, char **argv)
{
    return serve_main<echo_service>("echo", argc, argv);
}
