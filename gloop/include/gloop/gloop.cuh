/*
 * GLoop: event-driven kernels, after Suzuki et al., "GLoop: An Event-driven Runtime for Consolidating GPGPU
 * Applications" (SoCC '17).
 *
 *     gloop::HostLoop host;
 *     host.launch(blocks, threads, [=] __device__(gloop::DeviceLoop<> *loop) { ... });
 *
 * nvcc -std=c++17 --extended-lambda -arch=sm_75 or newer. Everything else: docs/gloop.md.
 */
#pragma once

#include "calls.cuh"
#include "host_loop.cuh"
