// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.metrics.Samples;

import java.util.concurrent.atomic.LongAdder;

/// The metrics of a router.
///
/// @param requests requests taken
record RouterSamples(
        Backends backends,
        PrefillStage prefill,
        DecodeStage decode,
        MooncakeStage mooncake,
        LongAdder requests) {
    void write(Samples samples) {
        var failovers = "Legs sent again.";
        samples.counter("kvferry_router_requests", "Requests taken.", requests.sum())
                .counter(
                        "kvferry_router_failovers",
                        failovers,
                        prefill.failovers.sum() + mooncake.failovers.sum(),
                        "leg",
                        "prefill")
                .counter(
                        "kvferry_router_failovers",
                        failovers,
                        decode.failovers.sum(),
                        "leg",
                        "decode")
                .counter(
                        "kvferry_router_prefill_skipped",
                        "Requests that no prefill instance could take.",
                        prefill.skipped.sum() + mooncake.skipped.sum())
                .counter(
                        "kvferry_router_releases",
                        "Holds given back at prefill instances.",
                        backends.releases.sum())
                .counter(
                        "kvferry_router_broken_streams",
                        "Streams that ended with an error event.",
                        decode.brokenStreams.sum());
        backends.all().forEach(upstream -> write(samples, upstream));
    }

    private void write(Samples samples, Upstream upstream) {
        String[] labels = {"role", upstream.role, "url", upstream.base.toString()};
        samples.gauge(
                        "kvferry_router_instance_up",
                        "1 while the instance seems to work.",
                        upstream.isUp() ? 1 : 0,
                        labels)
                .gauge(
                        "kvferry_router_instance_in_flight",
                        "Legs under way.",
                        upstream.inFlight.get(),
                        labels)
                .counter(
                        "kvferry_router_instance_requests",
                        "Legs sent.",
                        upstream.requests.sum(),
                        labels)
                .counter(
                        "kvferry_router_instance_failures",
                        "Legs that failed.",
                        upstream.failures.sum(),
                        labels);
        if (backends.isFollowed(upstream)) {
            samples.gauge(
                            "kvferry_router_instance_cached_blocks",
                            "Blocks that the instance has in its prefix cache, by its KV events.",
                            upstream.cached.size(),
                            labels)
                    .counter(
                            "kvferry_router_instance_kv_event_losses",
                            "Times that what the instance has cached became unknown.",
                            upstream.cached.losses.sum(),
                            labels)
                    .counter(
                            "kvferry_router_instance_kv_event_blocks_ignored",
                            "Blocks beyond the router's limit, or after a block it does not know.",
                            upstream.cached.ignored.sum(),
                            labels);
        }
        upstream.legs
                .get()
                .ifPresent(legs ->
                        samples.histogram(
                                "kvferry_router_instance_leg_seconds",
                                "Time of legs, first byte sent to last byte read.",
                                legs,
                                1e-6,
                                labels));
    }
}
