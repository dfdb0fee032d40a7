"""A library with a static runtime inside computes: nvJPEG encodes a picture. Usage: jpeg_client.py LIBNVJPEG

Its runtime starts, finds the device, allocates, launches and copies back; the picture is put on the device by the driver's own copy.
Prints the runtime's version, and length and digest of the encoded picture, which is the same wherever the same code ran.
"""

import ctypes
import hashlib
import sys
from ctypes import byref, c_int, c_size_t, c_void_p

WIDTH, HEIGHT = 256, 192
RGB_INTERLEAVED, NO_SUBSAMPLING, MAJOR, MINOR = 5, 0, 0, 1


class Image(ctypes.Structure):
    """nvjpegImage_t."""

    _fields_ = (("channel", c_void_p * 4), ("pitch", c_size_t * 4))


def picture() -> bytes:
    """Something with edges and gradients, the same every time."""
    return bytes((x * y + c * x + (x ^ y)) & 0xFF for y in range(HEIGHT) for x in range(WIDTH) for c in range(3))


def main() -> None:
    library, driver = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        if status := library[name](*arguments):
            sys.exit(f"{name}: nvJPEG's status {status}")

    version = [c_int(), c_int()]
    for which, value in zip((MAJOR, MINOR), version, strict=True):
        call("nvjpegGetCudartProperty", which, byref(value))
    handle, state, parameters, buffer, device = (c_void_p() for _ in range(5))
    call("nvjpegCreateSimple", byref(handle))
    call("nvjpegEncoderStateCreate", handle, byref(state), None)
    call("nvjpegEncoderParamsCreate", handle, byref(parameters), None)
    call("nvjpegEncoderParamsSetSamplingFactors", parameters, NO_SUBSAMPLING, None)
    call("nvjpegBufferDeviceCreate", handle, None, byref(buffer))
    pixels, size = picture(), c_size_t()
    call("nvjpegBufferDeviceResize", buffer, c_size_t(len(pixels)), None)
    call("nvjpegBufferDeviceRetrieve", buffer, byref(size), byref(device))
    if error := driver.cuMemcpyHtoD_v2(device, pixels, c_size_t(len(pixels))):
        sys.exit(f"cuMemcpyHtoD: CUDA error {error}")
    image = Image()
    image.channel[0], image.pitch[0] = device.value, WIDTH * 3
    call("nvjpegEncodeImage", handle, state, parameters, byref(image), RGB_INTERLEAVED, WIDTH, HEIGHT, None)
    length = c_size_t()
    call("nvjpegEncodeRetrieveBitstream", handle, state, None, byref(length), None)
    stream = ctypes.create_string_buffer(length.value)
    call("nvjpegEncodeRetrieveBitstream", handle, state, stream, byref(length), None)
    encoded = stream.raw[: length.value]
    if encoded[:2] != b"\xff\xd8" or encoded[-2:] != b"\xff\xd9":
        sys.exit("what came back is no JPEG")
    print(f"runtime {version[0].value}.{version[1].value}")
    print(f"{length.value} bytes, {hashlib.sha256(encoded).hexdigest()}")


if __name__ == "__main__":
    main()
