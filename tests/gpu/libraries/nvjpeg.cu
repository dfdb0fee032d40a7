/*
 * A picture is encoded by nvJPEG, and decoded again by kernels, step by step. What decides by itself takes the decoder
 * in hardware where there is one, which a guest has not, and whose results differ by one here and there.
 */
#include <nvjpeg.h>
#include <vector>

#include "library.h"

int main()
{
    const int SIDE = 96;
    std::vector<unsigned char> plane(SIDE * SIDE);
    nvjpegImage_t image = {};
    for (int channel = 0; channel < 3; channel++) {
        for (int i = 0; i < SIDE * SIDE; i++) {
            plane[i] = (unsigned char)(i % SIDE * (channel + 1) + i / SIDE * 2);
        }
        image.channel[channel] = on_device(plane);
        image.pitch[channel] = SIDE;
    }
    nvjpegHandle_t handle;
    nvjpegEncoderState_t encoder;
    nvjpegEncoderParams_t parameters;
    size_t bytes = 0;
    DO(nvjpegCreateSimple(&handle));
    DO(nvjpegEncoderStateCreate(handle, &encoder, NULL));
    DO(nvjpegEncoderParamsCreate(handle, &parameters, NULL));
    DO(nvjpegEncoderParamsSetQuality(parameters, 90, NULL));
    DO(nvjpegEncoderParamsSetSamplingFactors(parameters, NVJPEG_CSS_444, NULL));
    DO(nvjpegEncodeImage(handle, encoder, parameters, &image, NVJPEG_INPUT_RGB, SIDE, SIDE, NULL));
    DO(nvjpegEncodeRetrieveBitstream(handle, encoder, NULL, &bytes, NULL));
    std::vector<unsigned char> encoded(bytes);
    DO(nvjpegEncodeRetrieveBitstream(handle, encoder, encoded.data(), &bytes, NULL));
    say("encoded", encoded);
    nvjpegJpegDecoder_t decoder;
    nvjpegJpegState_t state;
    nvjpegBufferPinned_t pinned;
    nvjpegBufferDevice_t device;
    nvjpegJpegStream_t stream;
    nvjpegDecodeParams_t wanted;
    DO(nvjpegDecoderCreate(handle, NVJPEG_BACKEND_GPU_HYBRID, &decoder));
    DO(nvjpegDecoderStateCreate(handle, decoder, &state));
    DO(nvjpegBufferPinnedCreate(handle, NULL, &pinned));
    DO(nvjpegBufferDeviceCreate(handle, NULL, &device));
    DO(nvjpegStateAttachPinnedBuffer(state, pinned));
    DO(nvjpegStateAttachDeviceBuffer(state, device));
    DO(nvjpegJpegStreamCreate(handle, &stream));
    DO(nvjpegDecodeParamsCreate(handle, &wanted));
    DO(nvjpegDecodeParamsSetOutputFormat(wanted, NVJPEG_OUTPUT_RGB));
    DO(nvjpegJpegStreamParse(handle, encoded.data(), encoded.size(), 0, 0, stream));
    DO(nvjpegDecodeJpegHost(handle, decoder, state, wanted, stream));
    DO(nvjpegDecodeJpegTransferToDevice(handle, decoder, state, stream, NULL));
    DO(nvjpegDecodeJpegDevice(handle, decoder, state, &image, NULL));
    CHECK(cudaDeviceSynchronize());
    for (int channel = 0; channel < 3; channel++) {
        say("decoded", from_device(image.channel[channel], SIDE * SIDE));
    }
    DO(nvjpegDecodeParamsDestroy(wanted));
    DO(nvjpegJpegStreamDestroy(stream));
    DO(nvjpegBufferDeviceDestroy(device));
    DO(nvjpegBufferPinnedDestroy(pinned));
    DO(nvjpegJpegStateDestroy(state));
    DO(nvjpegDecoderDestroy(decoder));
    DO(nvjpegEncoderParamsDestroy(parameters));
    DO(nvjpegEncoderStateDestroy(encoder));
    DO(nvjpegDestroy(handle));
    return 0;
}
