// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import io.kvferry.backend.mooncake.p2p.PrefillSlot.Ask;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Optional;

/// Has blocks carried to decoders, a limited number of transfers at a time, the others in turn.
///
/// Threading: the prefill loop; the carrier's callbacks come back through it.
final class PushQueue {
    private final Carrier carrier;
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
            Carrier carrier,
            SerialLoop loop,
            MooncakeSettings settings,
            Outbox outbox,
            Ended ended) {
        this.carrier = carrier;
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
            begin(queue.remove());
        }
    }

    private void begin(Job job) {
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
        long bytes = ranges.totalBytes();
        running++;
        var going = new Going();
        job.slot().inFlight().add(going);
        going.stop =
                carrier.start(
                        job.slot(),
                        job.ask(),
                        ranges,
                        problem ->
                                loop.post(() -> {
                                    running--;
                                    job.slot().inFlight().remove(going);
                                    ranges.clear();
                                    spareRanges.push(ranges);
                                    problem.ifPresent(
                                            _ -> outbox.count("mooncake_num_failed_transfers"));
                                    end(job, problem.isEmpty() ? bytes : 0, problem);
                                    runJobs();
                                }));
    }

    /// A job on its way.
    private static final class Going implements Runnable {
        private Runnable stop = () -> {};

        @Override
        public void run() {
            stop.run();
        }
    }

    static Failure gone(Ask ask) {
        return new Failure(
                ErrorCode.PEER_LOST,
                "decoder " + ask.exchange().decoder() + " has gone since it asked");
    }

    private void end(Job job, long bytes, Optional<Failure> problem) {
        ended.ended(job.slot(), job.ask(), bytes, problem);
    }
}
