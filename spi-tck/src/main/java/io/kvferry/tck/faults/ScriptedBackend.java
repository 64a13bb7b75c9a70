// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Registration;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Function;

/// A transfer backend that moves nothing: a test says how each transfer ends, or ends it itself,
/// and what an estimate costs. It remembers what was asked of it. For tests of agents.
///
/// Threading: any thread.
public final class ScriptedBackend implements TransferBackendProvider {
    private final String name;
    private final BackendCapabilities capabilities;
    private final List<Pending> transfers = new CopyOnWriteArrayList<>();
    private volatile Function<TransferRequest, Optional<TransferOutcome>> script =
            request ->
                    Optional.of(
                            new TransferOutcome.Done(
                                    request.local().descriptors().bytes(), true, 1));
    private volatile Optional<Long> estimate = Optional.empty();
    private volatile boolean open;

    public ScriptedBackend(String name, BackendCapabilities capabilities) {
        this.name = name;
        this.capabilities = capabilities;
    }

    /// How transfers end, at once; empty leaves the end to the test, by [Pending#end]. The function
    /// may throw: then the submit does.
    public ScriptedBackend onSubmit(Function<TransferRequest, Optional<TransferOutcome>> answer) {
        script = answer;
        return this;
    }

    /// What an estimate says, for anything.
    public ScriptedBackend estimating(long nanos) {
        estimate = Optional.of(nanos);
        return this;
    }

    /// Every transfer that was accepted, in order.
    public List<Pending> transfers() {
        return List.copyOf(transfers);
    }

    public boolean isOpen() {
        return open;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public String description() {
        return "moves nothing, answers what a test says";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.NONE;
    }

    @Override
    public BackendCapabilities capabilities(OptionValues options) {
        return capabilities;
    }

    @Override
    public TransferBackend open(BackendContext context) {
        open = true;
        return new Backend();
    }

    /// A transfer that a test can end.
    public static final class Pending implements Transfer {
        private final TransferRequest request;
        private final CompletableFuture<TransferOutcome> outcome = new CompletableFuture<>();
        private final CompletableFuture<Void> quiesced = new CompletableFuture<>();
        private final boolean cancellable;

        Pending(TransferRequest request, boolean cancellable) {
            this.request = request;
            this.cancellable = cancellable;
        }

        public TransferRequest request() {
            return request;
        }

        /// Ends it, and nothing of it is in flight any more.
        public void end(TransferOutcome how) {
            outcome.complete(how);
            quiesced.complete(null);
        }

        /// Ends it, with parts still in flight until [#quiesce].
        public void endBusy(TransferOutcome how) {
            outcome.complete(how);
        }

        public void quiesce() {
            quiesced.complete(null);
        }

        @Override
        public CompletionStage<TransferOutcome> completion() {
            return outcome.minimalCompletionStage();
        }

        @Override
        public CompletionStage<Void> quiesced() {
            return quiesced.minimalCompletionStage();
        }

        @Override
        public Optional<TransferOutcome> poll() {
            return outcome.isDone() ? Optional.of(outcome.join()) : Optional.empty();
        }

        @Override
        public boolean cancel() {
            if (!cancellable || !outcome.complete(new TransferOutcome.Cancelled())) {
                return false;
            }
            quiesced.complete(null);
            return true;
        }
    }

    private record Memory(MemoryRange memory, long device, long address) implements Registration {
        @Override
        public void close() {
            // Nothing was pinned.
        }
    }

    private record Ranges(DescriptorList descriptors, Optional<PeerId> peer) implements Prepared {
        @Override
        public void close() {
            // Nothing was resolved.
        }
    }

    private final class Backend implements TransferBackend {
        @Override
        public BackendCapabilities capabilities() {
            return capabilities;
        }

        @Override
        public Registration register(MemoryRange memory) {
            long address = memory instanceof MemoryRange.Host(var segment) ? segment.address() : 0;
            return new Memory(memory, 0, address);
        }

        @Override
        public byte[] localMetadata() {
            return new byte[] {1};
        }

        @Override
        public void loadPeer(PeerId peer, byte[] section) {
            // Takes everybody.
        }

        @Override
        public void dropPeer(PeerId peer) {
            // Knows nobody.
        }

        @Override
        public Prepared prepare(Optional<PeerId> peer, DescriptorList descriptors) {
            return new Ranges(descriptors, peer);
        }

        @Override
        public Transfer submit(TransferRequest request) {
            if (!open) {
                throw new KvFerryException(ErrorCode.CLOSED, name + " is closed");
            }
            var end = script.apply(request);
            var transfer =
                    new Pending(request, capabilities.has(BackendCapabilities.Feature.CANCEL));
            transfers.add(transfer);
            end.ifPresent(transfer::end);
            return transfer;
        }

        @Override
        public Optional<Long> estimateNanos(
                Operation operation, Optional<PeerId> peer, int descriptors, long bytes) {
            return estimate;
        }

        @Override
        public void close() {
            open = false;
            transfers.forEach(transfer ->
                    transfer.end(
                            new TransferOutcome.Failed(
                                    new Failure(ErrorCode.CLOSED, name + " was closed"))));
        }
    }
}
