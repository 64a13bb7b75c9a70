// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.Failure;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Registration;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/// Memory registered with one or more backends of an agent. The caller keeps it alive and in place
/// until after [#close].
///
/// Threading: any thread.
public final class MemoryHandle implements AutoCloseable {
    private final MemoryRange memory;
    private final long device;
    private final Map<String, Registration> registrations;
    private final Map<String, Failure> refused;
    private final Consumer<MemoryHandle> closer;
    private final AtomicBoolean closed = new AtomicBoolean();

    MemoryHandle(
            MemoryRange memory,
            long device,
            Map<String, Registration> registrations,
            Map<String, Failure> refused,
            Consumer<MemoryHandle> closer) {
        this.memory = memory;
        this.device = device;
        this.registrations = Map.copyOf(registrations);
        this.refused = Map.copyOf(refused);
        this.closer = closer;
    }

    public MemoryRange memory() {
        return memory;
    }

    /// What descriptors name as their device: 0 for host memory, the device's number for device
    /// memory, an id of the agent for a file, object or volume.
    public long device() {
        return device;
    }

    /// Where descriptors start to count.
    public long address() {
        return registrations.values().iterator().next().address();
    }

    /// A list with the whole of it.
    public DescriptorList whole() {
        return DescriptorList.of(memory.kind(), device, address(), memory.length());
    }

    /// The backends that know it.
    public Set<String> backends() {
        return registrations.keySet();
    }

    /// The backends that take this kind of memory and refused this piece, with the reason.
    public Map<String, Failure> refused() {
        return refused;
    }

    Map<String, Registration> registrations() {
        return registrations;
    }

    /// Forgets the memory on every backend. Call it once every transfer on it has quiesced.
    /// Idempotent.
    @Override
    public void close() {
        if (closed.compareAndSet(false, true)) {
            closer.accept(this);
        }
    }
}
