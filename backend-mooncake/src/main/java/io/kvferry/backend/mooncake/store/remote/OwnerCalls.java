// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.remote;

import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.backend.mooncake.store.embedded.PinnedObjects;
import io.kvferry.backend.mooncake.store.embedded.PutSessions.Started;
import io.kvferry.backend.mooncake.store.remote.OwnerSession.OpenPuts;
import io.kvferry.backend.mooncake.te.EngineOutcome;
import io.kvferry.backend.mooncake.te.EngineRequest;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.backend.mooncake.te.WriteGrant;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/// What the owner does for a session.
///
/// Threading: any thread; [#get] moves bytes on the calling one.
final class OwnerCalls {
    private static final Logger LOG = LoggerFactory.getLogger(OwnerCalls.class);

    private static final long NO_STAGING = StoreCode.BUFFER_OVERFLOW.number();

    private final TransferEngine engine;
    private final Duration putLimit;

    /// @param putLimit after which puts that were not ended are given up
    OwnerCalls(TransferEngine engine, Duration putLimit) {
        this.engine = engine;
        this.putLimit = putLimit;
    }

    void exists(OwnerSession session, WireReader in, WireWriter out) {
        boolean lease = in.bool();
        List<String> keys = StoreProtocol.readKeys(in);
        var results = new int[keys.size()];
        session.client.exists(keys, lease, results);
        out.ints(results);
    }

    void describe(OwnerSession session, WireReader in, WireWriter out) {
        List<String> keys = StoreProtocol.readKeys(in);
        var found = new @Nullable ReplicaDescriptor[keys.size()];
        var results = new int[keys.size()];
        session.client.describe(keys, found, results);
        out.ints(results);
        for (ReplicaDescriptor replica : found) {
            if (replica != null) {
                StoreProtocol.write(out, replica.tier());
                out.string(replica.segment())
                        .i64(replica.segmentId())
                        .i64(replica.offset())
                        .i64(replica.length())
                        .i32(replica.checksum())
                        .i64(replica.leaseNanos());
            }
        }
    }

    void ping(OwnerSession session, WireWriter out) {
        Store.Removals removals = session.client.removals();
        out.bool(removals.all());
        StoreProtocol.writeKeys(out, removals.keys());
        Optional<StoreUsage> usage = session.client.usage();
        out.bool(usage.isPresent());
        usage.ifPresent(known ->
                out.i64(known.capacity())
                        .i64(known.used())
                        .i64(known.largestFree())
                        .i64(known.objects())
                        .i64(known.stored())
                        .i64(known.leased())
                        .i64(known.softPinned())
                        .i64(known.hardPinned())
                        .i64(known.busy())
                        .i64(known.evictable())
                        .i64(known.writing())
                        .i64(known.discarded()));
    }

    static StoreUsage readUsage(WireReader in) {
        return new StoreUsage(
                in.i64(), in.i64(), in.i64(), in.i64(), in.i64(), in.i64(), in.i64(), in.i64(),
                in.i64(), in.i64(), in.i64(), in.i64());
    }

    /// Makes room, and permits the user to write there and nowhere else.
    void putStart(OwnerSession session, WireReader in, WireWriter out) {
        long number = in.i64();
        var options = StoreProtocol.readOptions(in);
        int count = StoreProtocol.count(in, 13, StoreProtocol.MOST_KEYS);
        var keys = new ArrayList<String>(count);
        var sizes = new long[count];
        var groups = new ArrayList<@Nullable String>(count);
        for (int i = 0; i < count; i++) {
            keys.add(in.string());
            sizes[i] = in.i64();
            groups.add(in.bool() ? in.string() : null);
        }
        in.end();
        OpenPuts batch = session.begin(number, count, Deadline.in(putLimit));
        if (batch == null) {
            var refused = new int[count];
            Arrays.fill(refused, StoreCode.BUFFER_OVERFLOW.number());
            out.bool(false).i64(0).ints(refused);
            return;
        }
        boolean begun = false;
        try {
            session.client.putStart(keys, sizes, groups, options, batch.started(), batch.results());
            begun = answer(batch, out);
        } finally {
            if (begun) {
                session.begun(batch);
            } else {
                session.giveUp(batch);
            }
        }
    }

    /// Permits the user to write where its puts are, and tells it where that is.
    ///
    /// @return whether any was started
    private boolean answer(OpenPuts batch, WireWriter out) {
        var extents = new Extents.Builder();
        boolean any = false;
        for (Started put : batch.started()) {
            if (put != null) {
                extents.add(put.memory().address(), put.memory().byteSize());
                any = true;
            }
        }
        long token = 0;
        if (any) {
            WriteGrant grant = engine.grant(extents.build(), WriteGrant.Writers.TOKEN);
            batch.permit(grant);
            token = grant.token();
        }
        out.bool(any).i64(token).ints(batch.results());
        for (Started put : batch.started()) {
            if (put != null) {
                out.i64(put.memory().address());
            }
        }
        return any;
    }

    void putEnd(OwnerSession session, WireReader in, WireWriter out) {
        long number = in.i64();
        boolean written = in.bool();
        out.ints(session.end(number, written, in.ints()));
    }

    /// Writes objects into the memory of the user, under the user's grant.
    void get(OwnerSession session, WireReader in, WireWriter out, Deadline deadline) {
        String segment = in.string();
        String incarnation = in.string();
        long token = in.i64();
        int count = StoreProtocol.count(in, 8, StoreProtocol.MOST_KEYS);
        var keys = new ArrayList<String>(count);
        var addresses = new long[count][];
        var lengths = new long[count][];
        for (int i = 0; i < count; i++) {
            keys.add(in.string());
            addresses[i] = in.longs();
            lengths[i] = in.longs();
        }
        in.end();
        var results = new long[count];
        var checksums = new int[count];
        var destination = new Destination(segment, incarnation, token, addresses, lengths);
        var answers = new Answers(results, checksums);
        // What comes from disk may need more staging memory than there is at a time.
        for (int from = 0; from < count; ) {
            if (from > 0 && deadline.passed()) { // the caller has timed out
                Arrays.fill(results, from, count, StoreCode.FILE_READ_FAIL.number());
                break;
            }
            from = get(session, keys, from, destination, answers, deadline);
        }
        out.longs(results).ints(checksums);
    }

    /// Where the objects of a question go.
    @SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
    private record Destination(
            String segment, String incarnation, long token, long[][] addresses, long[][] lengths) {}

    /// What is answered, per key.
    @SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
    private record Answers(long[] results, int[] checksums) {}

    /// Sends the objects from index `from` on, as many as staging memory permits at a time.
    ///
    /// @return the index of the first object that found no staging memory, or the number of objects
    private int get(
            OwnerSession session,
            List<String> keys,
            int from,
            Destination to,
            Answers answers,
            Deadline deadline) {
        int count = keys.size();
        int end = count;
        try (PinnedObjects pinned = session.client.pin(keys.subList(from, count))) {
            for (int i = count - 1; i > from; i--) {
                if (pinned.result(i - from) == NO_STAGING) {
                    end = i;
                }
            }
            var ranges = new Ranges(16);
            for (int i = from; i < end; i++) {
                int at = i - from;
                answers.results[i] = pinned.result(at);
                if (answers.results[i] > 0
                        && !add(ranges, pinned, at, to.addresses[i], to.lengths[i])) {
                    answers.results[i] = StoreCode.INVALID_PARAMS.number();
                } else if (answers.results[i] > 0) {
                    answers.checksums[i] = pinned.checksum(at);
                }
            }
            if (ranges.size() > 0) {
                var request =
                        EngineRequest.write(to.segment, ranges, deadline)
                                .withIncarnation(to.incarnation)
                                .withCapability(to.token);
                if (engine.transfer(request) instanceof EngineOutcome.Failed failed) {
                    LOG.warn(
                            "{} objects could not be sent to {}: {}",
                            end - from,
                            to.segment,
                            failed.failure());
                    for (int i = from; i < end; i++) {
                        answers.results[i] =
                                Math.min(answers.results[i], StoreCode.TRANSFER_FAIL.number());
                    }
                }
            }
        }
        return end;
    }

    /// @return false when the pieces do not hold the object
    private static boolean add(
            Ranges ranges, PinnedObjects pinned, int index, long[] addresses, long[] lengths) {
        long left = pinned.result(index);
        long room = 0;
        for (long length : lengths) {
            if (length < 0) {
                return false;
            }
            room = Math.addExact(room, length);
        }
        if (addresses.length != lengths.length || room < left) {
            return false;
        }
        long from = pinned.memory(index).address();
        for (int i = 0; i < lengths.length && left > 0; i++) {
            long length = Math.min(left, lengths[i]);
            ranges.add(from, addresses[i], length);
            from += length;
            left -= length;
        }
        return true;
    }
}
