// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.copy.ReadOffer;
import io.kvferry.backend.mooncake.p2p.plane.ReadWindow;
import io.kvferry.backend.mooncake.p2p.wire.ReadReport;
import io.kvferry.backend.mooncake.p2p.wire.XferDecoder;
import io.kvferry.backend.mooncake.p2p.wire.XferResponse;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.Distribution;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/// Reads the blocks that prefiller workers offer to a decoder with transfer backends. Reports each
/// offer back exactly once: as read, when the read no longer touches any block, or as not read.
///
/// Threading: the decode loop.
final class FetchReads {
    private static final Duration AGAIN = Duration.ofMillis(5);

    private final SideChannel channel;
    private final SerialLoop loop;
    private final MooncakeSettings settings;
    private final Outbox outbox;
    private final Failed failed;

    /// Receives the failure of one worker's part of a fetch.
    @FunctionalInterface
    interface Failed {
        /// @param lost whether the worker is gone; false if only the read failed
        void failed(Fetch fetch, String address, Failure failure, boolean lost);
    }

    /// A read on its way.
    private record Job(
            Fetch fetch,
            String address,
            ReadWindow window,
            ReadOffer offer,
            Ranges ranges,
            Deadline by,
            long begun) {}

    FetchReads(
            SideChannel channel,
            SerialLoop loop,
            MooncakeSettings settings,
            Outbox outbox,
            Failed failed) {
        this.channel = channel;
        this.loop = loop;
        this.settings = settings;
        this.outbox = outbox;
        this.failed = failed;
    }

    /// A worker offers its part of a fetch.
    void offered(Fetch fetch, String address, byte[] bytes) {
        ReadOffer offer;
        try {
            offer = ReadOffer.decode(bytes);
        } catch (KvFerryException e) {
            failed.failed(fetch, address, Failure.of(e), false);
            return;
        }
        var window = fetch.reads();
        if (window.isEmpty()) { // a release, or a decoder that is written into
            report(fetch, address, offer, "nothing is to be read");
            return;
        }
        try {
            var by =
                    Deadline.in(settings.transferTimeout())
                            .earlier(Deadline.in(Duration.ofMillis(offer.withinMillis())));
            fetch.reading().add(address);
            start(
                    new Job(
                            fetch,
                            address,
                            window.get(),
                            offer,
                            offer.ranges(fetch.pull().blocks()),
                            by,
                            System.nanoTime()));
        } catch (RuntimeException | Error e) { // also of a plan that is out of range
            failed(fetch, address, offer, Failure.of(e));
        }
    }

    private void start(Job job) {
        try {
            job.window()
                    .read(
                            job.offer().source(),
                            job.ranges(),
                            job.by(),
                            job.fetch().pull().request(),
                            new Ending(job));
        } catch (KvFerryException e) {
            if (e.code() == ErrorCode.BACKPRESSURE && !job.by().passed()) {
                channel.after(AGAIN, () -> loop.post(() -> start(job)));
            } else {
                failed(job.fetch(), job.address(), job.offer(), Failure.of(e));
            }
        } catch (RuntimeException | Error e) { // the border to the backends; no thread, for one
            failed(job.fetch(), job.address(), job.offer(), Failure.of(e));
        }
    }

    /// The end of a read. Allocated before the read starts, so that the loop is notified even if
    /// memory runs out.
    private final class Ending implements ReadWindow.Ended, Runnable {
        private final Job job;
        private volatile TransferOutcome outcome = new TransferOutcome.Cancelled();
        private volatile String way = "";

        Ending(Job job) {
            this.job = job;
        }

        @Override
        public void ended(TransferOutcome how, String by) {
            outcome = how;
            way = by;
            loop.post(this);
        }

        @Override
        public void run() {
            FetchReads.this.ended(job, outcome, way);
        }
    }

    /// @param way the backend that carried it, empty if unknown
    private void ended(Job job, TransferOutcome outcome, String way) {
        switch (outcome) {
            case TransferOutcome.Done _ -> {
                job.fetch().reading().remove(job.address());
                report(job.fetch(), job.address(), job.offer(), "");
                record(job, way);
            }
            case TransferOutcome.Failed(var failure, _) ->
                    failed(job.fetch(), job.address(), job.offer(), failure);
            case TransferOutcome.Cancelled _ ->
                    failed(
                            job.fetch(),
                            job.address(),
                            job.offer(),
                            new Failure(ErrorCode.CANCELLED, "the load ended while it was read"));
            case TransferOutcome.TimedOut _ ->
                    failed(
                            job.fetch(),
                            job.address(),
                            job.offer(),
                            new Failure(ErrorCode.TIMEOUT, "the read took too long"));
        }
    }

    private void record(Job job, String way) {
        outbox.record(
                new Stats(
                        way.isEmpty()
                                ? Map.of("mooncake_num_successful_transfers", 1L)
                                : Map.of(
                                        "mooncake_num_successful_transfers",
                                        1L,
                                        "mooncake_num_transfers_over_" + way,
                                        1L),
                        Map.of(),
                        Map.of(
                                "mooncake_xfer_time_us",
                                Distribution.of((System.nanoTime() - job.begun()) / 1000),
                                "mooncake_bytes_transferred",
                                Distribution.of(job.ranges().totalBytes()),
                                "mooncake_num_descriptors",
                                Distribution.of(job.ranges().size()))));
    }

    private void failed(Fetch fetch, String address, ReadOffer offer, Failure failure) {
        fetch.reading().remove(address);
        report(fetch, address, offer, failure.toString());
        failed.failed(fetch, address, failure, false);
    }

    /// @param error empty for a read that is done; the prefiller says then whether it counts
    private void report(Fetch fetch, String address, ReadOffer offer, String error) {
        if (!error.isEmpty()) {
            outbox.count("mooncake_num_failed_transfers");
        }
        var _ =
                channel.exchange(
                        address,
                        new ReadReport(offer.ticket(), error).encode(),
                        settings.connectorTimeout(),
                        settings.connectorTimeout(),
                        SideChannel.Turn.SHORT,
                        settings.carriage(true), // only kvferry prefillers offer reads
                        new Verdict(fetch, address, error.isEmpty()));
    }

    /// The answer of the prefiller to a report. That it counts is said again in the answer to the
    /// request, which ends the worker's part.
    private final class Verdict implements SideChannel.Answers {
        private final Fetch fetch;
        private final String address;
        private final boolean read;

        Verdict(Fetch fetch, String address, boolean read) {
            this.fetch = fetch;
            this.address = address;
            this.read = read;
        }

        @Override
        public SideChannel.Reading onAnswer(byte[] message) {
            try {
                var answer = XferDecoder.response(message);
                if (answer.status() != XferResponse.Status.FINISH) {
                    tell(new Failure(ErrorCode.PEER_REFUSED, answer.errMsg()), false);
                }
                return answer.status().reading();
            } catch (KvFerryException e) {
                tell(Failure.of(e), true);
                return SideChannel.Reading.GIVE_UP;
            }
        }

        @Override
        public void onLost(Failure failure) {
            tell(failure, true);
        }

        private void tell(Failure failure, boolean lost) {
            if (read) {
                loop.post(() -> failed.failed(fetch, address, failure, lost));
            }
        }
    }

    /// Why an answer cannot be that the blocks are there; empty when it can.
    static Optional<Failure> tooEarly(Fetch fetch, String address) {
        return fetch.reading().contains(address)
                ? Optional.of(
                        new Failure(
                                ErrorCode.PROTOCOL,
                                "prefiller " + address + " says done before it was read from"))
                : Optional.empty();
    }
}
