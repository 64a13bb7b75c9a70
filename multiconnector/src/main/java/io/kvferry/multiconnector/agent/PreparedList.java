// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.Failure;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;

import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/// A descriptor list resolved by every backend that covers all of it, ready to be posted many
/// times. Closing it early harms no transfer.
///
/// Threading: any thread.
public final class PreparedList implements AutoCloseable {
    /// What one backend made of the list, and what it says a transfer of its size costs.
    record Entry(Prepared prepared, long readNanos, long writeNanos) {
        long estimate(Operation operation) {
            return operation == Operation.READ ? readNanos : writeNanos;
        }
    }

    private final DescriptorList descriptors;
    private final Optional<PeerId> peer;
    private final int alignment;
    private final long longest;
    private final Map<String, Entry> entries;
    private final Map<String, Failure> refused;
    private final Consumer<PreparedList> closer;
    private final AtomicBoolean closed = new AtomicBoolean();

    PreparedList(
            DescriptorList descriptors,
            Optional<PeerId> peer,
            Map<String, Entry> entries,
            Map<String, Failure> refused,
            Consumer<PreparedList> closer) {
        this.descriptors = descriptors;
        this.peer = peer;
        this.alignment = alignment(descriptors);
        this.longest = longest(descriptors);
        this.entries = Map.copyOf(entries);
        this.refused = Map.copyOf(refused);
        this.closer = closer;
    }

    private static int alignment(DescriptorList list) {
        long bits = 1L << 30;
        for (int i = 0; i < list.count(); i++) {
            bits |= list.address(i) | list.length(i);
        }
        return (int) Long.lowestOneBit(bits);
    }

    private static long longest(DescriptorList list) {
        long most = 0;
        for (int i = 0; i < list.count(); i++) {
            most = Math.max(most, list.length(i));
        }
        return most;
    }

    /// Bytes of the longest range.
    long longest() {
        return longest;
    }

    public DescriptorList descriptors() {
        return descriptors;
    }

    /// Whose memory it is; empty for this agent's own.
    public Optional<PeerId> peer() {
        return peer;
    }

    /// Largest power of two (at most 2^30) that divides every address and length.
    public int alignment() {
        return alignment;
    }

    Map<String, Entry> entries() {
        return entries;
    }

    /// Why a backend has not prepared it.
    Optional<Failure> refusal(String backend) {
        return Optional.ofNullable(refused.get(backend));
    }

    boolean isClosed() {
        return closed.get();
    }

    /// Frees the handles of the backends. Idempotent.
    @Override
    public void close() {
        if (closed.compareAndSet(false, true)) {
            closer.accept(this);
        }
    }
}
