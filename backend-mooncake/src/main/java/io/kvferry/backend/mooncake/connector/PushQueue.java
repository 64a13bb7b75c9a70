// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector;

import io.kvferry.backend.mooncake.connector.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.connector.wire.PeerExtension;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.backend.mooncake.te.TransferOutcome;
import io.kvferry.backend.mooncake.te.TransferRequest;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// Writes blocks into decoders' memory, a limited number of transfers at a time, the others in
/// turn.
///
/// Threading: the prefill loop; the transfer engine's callbacks come back through it.
final class PushQueue {
    private final TransferEngine engine;
    private final SerialLoop loop;
    private final MooncakeSettings settings;
    private final Outbox outbox;
    private final Ended ended;
    private final Deque<Job> queue = new ArrayDeque<>();
    private final Deque<Ranges> spareRanges = new ArrayDeque<>();
    private int running;

    private record Job(PrefillSlot slot, Ask ask) {}

    /// Hears of every job once, when nothing reads its blocks any more.
    @FunctionalInterface
    interface Ended {
        void ended(PrefillSlot slot, Ask ask, long bytes, Optional<Failure> problem);
    }

    PushQueue(
            TransferEngine engine,
            SerialLoop loop,
            MooncakeSettings settings,
            Outbox outbox,
            Ended ended) {
        this.engine = engine;
        this.loop = loop;
        this.settings = settings;
        this.outbox = outbox;
        this.ended = ended;
    }

    void add(PrefillSlot slot, Ask ask) {
        queue.add(new Job(slot, ask));
        runJobs();
    }

    /// Takes out what has not begun; it is for the caller to end.
    List<Ask> withdraw(PrefillSlot slot) {
        var withdrawn = new ArrayList<Ask>();
        queue.removeIf(job -> job.slot().equals(slot) && withdrawn.add(job.ask()));
        return withdrawn;
    }

    private void runJobs() {
        while (running < settings.numWorkers() && !queue.isEmpty()) {
            write(queue.remove());
        }
    }

    private void write(Job job) {
        if (job.ask().exchange().isGone()) {
            // Nobody waits for the answer, and somebody else may have its port and addresses by
            // now.
            end(job, 0, Optional.of(gone(job.ask())));
            return;
        }
        var plan = job.ask().exchange().plan();
        var wanted = job.ask().wanted();
        if (wanted.releaseOnly()) {
            end(job, 0, Optional.empty());
            return;
        }
        var mismatch = plan.mismatch(job.slot().blocks(), wanted.groups());
        if (!mismatch.isEmpty()) {
            end(job, 0, Optional.of(new Failure(ErrorCode.INCOMPATIBLE, mismatch)));
            return;
        }
        var ranges = spareRanges.isEmpty() ? new Ranges(256) : spareRanges.pop();
        plan.append(job.slot().blocks(), wanted.groups(), ranges);
        if (ranges.size() == 0) { // no part in it: another rank of the same heads sends
            spareRanges.push(ranges);
            end(job, 0, Optional.empty());
            return;
        }
        submit(job, ranges);
    }

    private void submit(Job job, Ranges ranges) {
        long begun = System.nanoTime();
        long bytes = ranges.totalBytes();
        int descriptors = ranges.size();
        running++;
        var transfer = engine.submit(request(job, ranges));
        job.slot().inFlight().add(transfer);
        transfer.quiesced()
                .thenCombine(transfer.outcome(), (_, outcome) -> outcome)
                .thenAccept(outcome ->
                        loop.post(() -> {
                            running--;
                            job.slot().inFlight().remove(transfer);
                            ranges.clear();
                            spareRanges.push(ranges);
                            switch (outcome) {
                                case TransferOutcome.Completed(_, _, String path) -> {
                                    record(path, System.nanoTime() - begun, bytes, descriptors);
                                    end(job, bytes, Optional.empty());
                                }
                                case TransferOutcome.Failed(var failure, _) -> {
                                    outbox.count("mooncake_num_failed_transfers");
                                    end(job, 0, Optional.of(failure));
                                }
                            }
                            runJobs();
                        }));
    }

    static Failure gone(Ask ask) {
        return new Failure(
                ErrorCode.PEER_LOST,
                "decoder " + ask.exchange().decoder() + " has gone since it asked");
    }

    private TransferRequest request(Job job, Ranges ranges) {
        var exchange = job.ask().exchange();
        var by = Deadline.in(settings.transferTimeout()).earlier(exchange.writeBy());
        var request = TransferRequest.write(exchange.message().segmentName(), ranges, by);
        if (!engine.info().grants()) { // Mooncake's library has no words for what follows
            return request;
        }
        var extension = exchange.message().extension();
        return request.withIncarnation(extension.map(PeerExtension::incarnation).orElse(""))
                .withCapability(
                        extension
                                .map(given -> given.grants().getOrDefault(job.ask().request(), 0L))
                                .orElse(0L));
    }

    /// @param path what carried the bytes, as the engine says
    private void record(String path, long nanos, long bytes, int descriptors) {
        outbox.record(
                new Stats(
                        Map.of(
                                "mooncake_num_successful_transfers",
                                1L,
                                "mooncake_num_transfers_over_" + path,
                                1L),
                        Map.of(),
                        Map.of(
                                "mooncake_xfer_time_us", Distribution.of(nanos / 1000),
                                "mooncake_bytes_transferred", Distribution.of(bytes),
                                "mooncake_num_descriptors", Distribution.of(descriptors))));
    }

    private void end(Job job, long bytes, Optional<Failure> problem) {
        ended.ended(job.slot(), job.ask(), bytes, problem);
    }
}
