// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.transfer;

import io.kvferry.spi.memory.MemoryRange;

/// Memory made known to one backend. The caller keeps the memory alive and in place until after
/// [#close].
public interface Registration extends AutoCloseable {
    MemoryRange memory();

    /// The device id that descriptors use: 0 for host memory, the device's number for device
    /// memory, an id from the backend for a file, object or volume.
    long device();

    /// Where descriptors start to count: the native address of host and device memory, 0 for a
    /// file, object or volume.
    long address();

    /// Forgets the memory. Waits for nothing: the caller has seen every transfer on it quiesced;
    /// transfers still in flight fail with CLOSED, and remote access to it is refused from now on.
    /// Idempotent; any thread a backend allows.
    @Override
    void close();
}
