// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.util.Objects;

/// A device and the stream on which the engine works with its memory; made by the host.
///
/// A host hands device memory only to a connector that claims
/// [io.kvferry.spi.kv.ConnectorCapabilities.Feature#DEVICE_REGIONS] and to a backend with a route
/// for [MemoryKind#DEVICE]; all others refuse it. It guarantees that `stream` belongs to `ordinal`,
/// that the device's context is current on every thread that calls a half, and that all three
/// outlive whatever they were given to. The engine of this project computes on the CPU and makes
/// none.
///
/// Bytes are *in the regions* of a device as soon as whatever is enqueued on `stream` from then on
/// sees them. So at `endStep` the kernels that compute the step's KV have been enqueued, and need
/// not have run: a half that reads regions enqueues the copy on `stream`, or lets a stream of its
/// own wait for an event recorded there. And a load is in place when `stream` has been made to wait
/// for it, but is reported as completed only when it has really ended: what failed cannot be taken
/// back.
///
/// @param api the driver that `stream` and the addresses belong to
/// @param ordinal number of the device among those that the process sees
/// @param stream handle as the driver gave it out (`CUstream`, `hipStream_t`); 0 for the default
///   stream
public record DeviceContext(Api api, int ordinal, long stream) {
    /// Driver APIs.
    public enum Api {
        CUDA,
        HIP,
        LEVEL_ZERO
    }

    public DeviceContext {
        Objects.requireNonNull(api, "api");
        if (ordinal < 0) {
            throw new IllegalArgumentException("device ordinal " + ordinal);
        }
    }
}
