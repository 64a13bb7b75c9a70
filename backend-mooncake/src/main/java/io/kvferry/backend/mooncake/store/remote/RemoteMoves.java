// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.OwnerLink.Session;
import io.kvferry.backend.mooncake.store.remote.StoreProtocol.Operation;
import io.kvferry.backend.mooncake.store.remote.StoreQuestions.Answer;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.wire.WireReader;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/// Puts and gets of keys whose memory the transfer engine reaches.
///
/// Threading: any thread; the bytes move on the calling one, or on one of the owner.
final class RemoteMoves {
    private static final Logger LOG = LoggerFactory.getLogger(RemoteMoves.class);
    private static final int[] NO_SUMS = {};
    private static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

    private final OwnerLink link;
    private final TransferEngine engine;
    private final Duration askLimit;
    private final Duration moveLimit;

    /// Of the batches of puts.
    private final AtomicLong numbers = new AtomicLong();

    RemoteMoves(OwnerLink link, TransferEngine engine, Duration askLimit, Duration moveLimit) {
        this.link = link;
        this.engine = engine;
        this.askLimit = askLimit;
        this.moveLimit = moveLimit;
    }

    /// Stores keys `from` to `to` of a batch. They are summed while the owner makes room and while
    /// the bytes move.
    void put(Session open, StoreBatch batch, int from, int to, PutOptions options, int[] results) {
        var sizes = new long[to - from];
        for (int i = from; i < to; i++) {
            sizes[i - from] = batch.bytes(i);
        }
        var sums = BatchSums.begin(batch, from, sizes);
        try {
            long number = numbers.incrementAndGet();
            Answer begun = begun(open, number, batch, from, to, options);
            if (begun.code() == 0) {
                put(open, number, batch, from, begun.body(), sums, sizes, results);
            } else {
                fill(results, from, to, begun.code());
            }
        } finally {
            sums.cancel();
        }
    }

    /// Asks the owner to allocate room. If the request times out, the batch is cancelled at the
    /// owner, which may have received the request or may still receive it.
    private Answer begun(
            Session open, long number, StoreBatch batch, int from, int to, PutOptions options) {
        Answer begun =
                link.ask(
                        open,
                        Operation.PUT_START,
                        askLimit,
                        out -> {
                            out.i64(number);
                            StoreProtocol.write(out, options);
                            out.i32(to - from);
                            for (int i = from; i < to; i++) {
                                String group = batch.group(i);
                                out.string(batch.key(i)).i64(batch.bytes(i)).bool(group != null);
                                if (group != null) {
                                    out.string(group);
                                }
                            }
                        });
        if (begun.code() == StoreCode.RPC_TIMEOUT.number()) {
            link.tell(
                    open,
                    Operation.PUT_END,
                    askLimit,
                    out -> out.i64(number).bool(false).ints(NO_SUMS));
        }
        return begun;
    }

    private void put(
            Session open,
            long number,
            StoreBatch batch,
            int from,
            WireReader begun,
            BatchSums sums,
            long[] sizes,
            int[] results) {
        boolean any = begun.bool();
        long token = begun.i64();
        int[] codes = begun.ints();
        if (codes.length != sizes.length) {
            fill(results, from, from + sizes.length, StoreCode.INTERNAL.number());
            return;
        }
        var ranges = new Ranges(batch.end(from + codes.length - 1) - batch.first(from));
        for (int i = from; i < from + codes.length; i++) {
            if (codes[i - from] == 0) {
                long at = begun.i64();
                for (int b = batch.first(i); b < batch.end(i); b++) {
                    ranges.add(batch.memory(b).address() + batch.offset(b), at, batch.length(b));
                    at += batch.length(b);
                }
            } else {
                sizes[i - from] = 0;
            }
        }
        if (any) {
            var request =
                    EngineRequest.write(open.engine(), ranges, Deadline.in(moveLimit))
                            .withIncarnation(open.incarnation())
                            .withCapability(token);
            boolean written = completed(engine.transfer(request), "put");
            codes = ended(open, number, written, written ? sums.await() : NO_SUMS, codes);
        }
        for (int i = 0; i < codes.length; i++) {
            int code = codes[i];
            results[from + i] = code == StoreCode.OBJECT_ALREADY_EXISTS.number() ? 0 : code;
        }
    }

    private int[] ended(Session open, long number, boolean written, int[] checksums, int[] begun) {
        Answer ended =
                link.ask(
                        open,
                        Operation.PUT_END,
                        moveLimit,
                        out -> out.i64(number).bool(written).ints(checksums));
        int[] codes = ended.code() == 0 ? ended.body().ints() : new int[0];
        if (codes.length == begun.length) {
            return codes;
        }
        int code = ended.code() == 0 ? StoreCode.OBJECT_NOT_FOUND.number() : ended.code();
        for (int i = 0; i < begun.length; i++) {
            begun[i] = begun[i] == 0 ? code : begun[i];
        }
        return begun;
    }

    private static boolean completed(EngineOutcome outcome, String what) {
        if (outcome instanceof EngineOutcome.Failed failed) {
            LOG.debug("the bytes of a {} were not moved: {}", what, failed.failure());
            return false;
        }
        return true;
    }

    /// Has the owner write keys `from` to `to` of a batch into their memory.
    void get(Session open, StoreBatch batch, int from, int to, long[] results) {
        var extents = new Extents.Builder();
        boolean any = false;
        for (int b = batch.first(from); b < batch.end(to - 1); b++) {
            if (batch.length(b) > 0) {
                extents.add(batch.memory(b).address() + batch.offset(b), batch.length(b));
                any = true;
            }
        }
        if (!any) {
            fill(results, from, to, StoreCode.INVALID_PARAMS.number());
            return;
        }
        WriteGrant grant = engine.grant(extents.build(), WriteGrant.Writers.TOKEN);
        Answer answer;
        try {
            answer = asked(open, batch, from, to, grant.token());
        } finally {
            close(grant);
        }
        if (answer.code() != 0) {
            fill(results, from, to, answer.code());
            return;
        }
        long[] got = answer.body().longs();
        int[] checksums = answer.body().ints();
        int[] arrived = BatchSums.begin(batch, from, got).await();
        for (int i = from; i < to; i++) {
            results[i] = got[i - from];
            if (results[i] > 0 && arrived[i - from] != checksums[i - from]) {
                results[i] = StoreCode.CHECKSUM_MISMATCH.number();
                String key = batch.key(i);
                LOG.warn("other bytes came than were put under {}", key);
                link.ask(open, Operation.DAMAGED, askLimit, out -> out.string(key));
            }
        }
    }

    private Answer asked(Session open, StoreBatch batch, int from, int to, long token) {
        var info = engine.info();
        return link.ask(
                open,
                Operation.GET,
                moveLimit,
                out -> {
                    out.string(info.segmentName())
                            .string(info.incarnation())
                            .i64(token)
                            .i32(to - from);
                    for (int i = from; i < to; i++) {
                        int first = batch.first(i);
                        int count = batch.end(i) - first;
                        var addresses = new long[count];
                        var lengths = new long[count];
                        for (int b = 0; b < count; b++) {
                            addresses[b] =
                                    batch.memory(first + b).address() + batch.offset(first + b);
                            lengths[b] = batch.length(first + b);
                        }
                        out.string(batch.key(i)).longs(addresses).longs(lengths);
                    }
                });
    }

    /// Ends the permission to write. Where the owner's process was stopped in the middle of a copy
    /// this waits until that has ended one way or the other: the memory must not be used before.
    private void close(WriteGrant grant) {
        for (boolean told = false; ; told = true) {
            try {
                grant.close();
                return;
            } catch (KvFerryException e) {
                if (e.code() != ErrorCode.TIMEOUT || link.isClosed()) {
                    throw e;
                }
                if (!told) {
                    LOG.warn("the owner of the store does not let go of memory: {}", e.toString());
                }
                LockSupport.parkNanos(PAUSE_NANOS);
            }
        }
    }

    private static void fill(int[] results, int from, int to, int code) {
        for (int i = from; i < to; i++) {
            results[i] = code;
        }
    }

    private static void fill(long[] results, int from, int to, int code) {
        for (int i = from; i < to; i++) {
            results[i] = code;
        }
    }
}
