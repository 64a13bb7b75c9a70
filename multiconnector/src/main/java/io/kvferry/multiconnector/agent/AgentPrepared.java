// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;

import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/// A descriptor list resolved by every backend that covers all of it.
///
/// Threading: any thread.
final class AgentPrepared implements Prepared {
    /// The list as one backend has prepared it, and its estimate of the cost of a transfer.
    record Entry(Prepared prepared, long readNanos, long writeNanos) {
        long estimate(Operation operation) {
            return operation == Operation.READ ? readNanos : writeNanos;
        }
    }

    private final MemoryTable table;
    private final DescriptorList descriptors;
    private final Optional<PeerId> peer;
    private final int alignment;
    private final Map<String, Entry> entries;
    private final Map<String, Failure> refused;
    private final AtomicBoolean closed = new AtomicBoolean();

    /// Reference count: one for the owner, one for each running transfer.
    private final AtomicInteger users = new AtomicInteger(1);

    AgentPrepared(
            MemoryTable table,
            DescriptorList descriptors,
            Optional<PeerId> peer,
            Map<String, Entry> entries,
            Map<String, Failure> refused) {
        this.table = table;
        this.descriptors = descriptors;
        this.peer = peer;
        this.alignment = alignment(descriptors);
        this.entries = Map.copyOf(entries);
        this.refused = Map.copyOf(refused);
    }

    private static int alignment(DescriptorList list) {
        long bits = 1L << 30;
        for (int i = 0; i < list.count(); i++) {
            bits |= list.address(i) | list.length(i);
        }
        return (int) Long.lowestOneBit(bits);
    }

    @Override
    public DescriptorList descriptors() {
        return descriptors;
    }

    @Override
    public Optional<PeerId> peer() {
        return peer;
    }

    /// Largest power of two (at most 2^30) that divides every address and length.
    int alignment() {
        return alignment;
    }

    Map<String, Entry> entries() {
        return entries;
    }

    Optional<Entry> on(String backend) {
        return Optional.ofNullable(entries.get(backend));
    }

    Entry require(String backend) {
        return on(backend)
                .orElseThrow(() ->
                        new KvFerryException(
                                ErrorCode.NOT_FOUND, "the list is not prepared on " + backend));
    }

    /// Why a backend has not prepared it.
    Optional<Failure> refusal(String backend) {
        return Optional.ofNullable(refused.get(backend));
    }

    boolean isOf(MemoryTable other) {
        return table == other;
    }

    boolean isClosed() {
        return closed.get();
    }

    /// Keeps the backends' handles valid until [#release], even if the list is closed in the
    /// meantime: a transfer may need them for its next attempt or next piece.
    ///
    /// @return false when the handles have already been freed
    boolean retain() {
        return users.getAndUpdate(count -> count == 0 ? 0 : count + 1) > 0;
    }

    /// Never waits and never throws.
    void release() {
        if (users.decrementAndGet() == 0) {
            table.close(this);
        }
    }

    /// Frees the backends' handles once no transfer uses them; those of a CONFINED backend when its
    /// loop comes to them.
    @Override
    public void close() {
        if (closed.compareAndSet(false, true)) {
            release();
        }
    }
}
