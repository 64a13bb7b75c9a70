// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.plane;

import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.toolkit.bounded.LoopReport;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// The reads that fill the blocks of one load. Closing it ends the load: no read starts afterwards,
/// and no earlier one touches the blocks any more.
///
/// Threading: [#read] and [#shut] on one thread; [#close] on any, after [#shut].
public final class ReadWindow implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ReadWindow.class);

    private static final Duration PATIENCE = Duration.ofSeconds(5);

    private final HostBackends backends;
    private final Extents into;
    private final Duration patience;
    private final Set<Read> running = ConcurrentHashMap.newKeySet();
    private volatile boolean shut;

    ReadWindow(HostBackends backends, Extents into) {
        this(backends, into, PATIENCE);
    }

    /// @param patience how long one call of [#close] waits
    ReadWindow(HostBackends backends, Extents into, Duration patience) {
        this.backends = backends;
        this.into = into;
        this.patience = patience;
    }

    /// The source of a read.
    ///
    /// @param metadata of the backends there
    public record Source(PeerId peer, byte[] metadata) {}

    /// A read, recorded before it starts. Recording it later could fail with an OutOfMemoryError,
    /// and the blocks would be reused while they are written.
    private static final class Read {
        private volatile @Nullable Transfer transfer;

        void cancel() {
            Transfer begun = transfer;
            if (begun != null) {
                begun.cancel();
            }
        }

        CompletableFuture<?> quiet() {
            Transfer begun = transfer;
            return begun == null
                    ? CompletableFuture.completedFuture(null)
                    : begun.quiesced().toCompletableFuture();
        }
    }

    /// Receives the end of a read.
    @FunctionalInterface
    public interface Ended {
        /// @param way name of the backend that carried it, empty if unknown
        void ended(TransferOutcome outcome, String way);
    }

    /// Starts to read.
    ///
    /// @param ranges from remote to local addresses
    /// @param then called once on a thread of the backend, when nothing of the read touches a block
    /// @throws KvFerryException [ErrorCode#CANCELLED] once shut, [ErrorCode#PROTOCOL] for a range
    ///   outside the blocks of this load, [ErrorCode#BACKPRESSURE], or a code of the backend;
    ///   nothing was started then
    /// @throws OutOfMemoryError when `then` will not be called; [#close] waits for the end
    public void read(Source from, Ranges ranges, Deadline deadline, String tag, Ended then) {
        if (shut) {
            throw new KvFerryException(ErrorCode.CANCELLED, "the load has ended");
        }
        for (int i = 0; i < ranges.size(); i++) {
            if (!into.covers(ranges.localAddress(i), ranges.bytes(i))) {
                throw new KvFerryException(
                        ErrorCode.PROTOCOL,
                        "prefiller %s has something read to 0x%x+%d, which is not of this load"
                                .formatted(from.peer(), ranges.localAddress(i), ranges.bytes(i)));
            }
        }
        var read = new Read();
        running.add(read);
        Transfer transfer;
        boolean begun = false;
        try {
            transfer = backends.read(from.peer(), from.metadata(), ranges, deadline, tag);
            read.transfer = transfer;
            begun = true;
        } finally {
            if (!begun) {
                running.remove(read);
            }
        }
        boolean followed = false;
        try {
            follow(read, transfer, then);
            followed = true;
        } finally {
            if (!followed || shut) { // by a close that does not come from the thread of the reads
                read.cancel();
            }
        }
    }

    private void follow(Read read, Transfer transfer, Ended then) {
        var _ =
                transfer.quiesced()
                        .thenCombine(transfer.completion(), (_, outcome) -> outcome)
                        .thenAccept(outcome -> {
                            running.remove(read);
                            then.ended(outcome, way(transfer));
                        });
    }

    /// Only counted: what a backend throws here must not hide the end of a read.
    private static String way(Transfer transfer) {
        try {
            var ways = transfer.attempts();
            return ways.isEmpty() ? "" : ways.getLast().toLowerCase(Locale.ROOT);
        } catch (RuntimeException | Error e) {
            LoopReport.WARN.log(LOG, "a backend does not say what carried a read", e);
            return "";
        }
    }

    /// Starts no more reads, and stops those that run.
    public void shut() {
        shut = true;
        running.forEach(Read::cancel);
    }

    /// Returns when no read touches the blocks.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when one still may; to be called again then
    @Override
    public void close() {
        shut();
        var quiet =
                CompletableFuture.allOf(
                        running.stream().map(Read::quiet).toArray(CompletableFuture<?>[]::new));
        try {
            var _ = quiet.get(patience.toMillis(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException e) {
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, "a read that was cancelled may still fill the blocks", e);
        } catch (ExecutionException e) {
            throw new KvFerryException(
                    ErrorCode.INTERNAL, "a transfer backend failed to say that it is quiet", e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new KvFerryException(
                    ErrorCode.TIMEOUT, "interrupted while a read may still fill the blocks", e);
        }
    }
}
