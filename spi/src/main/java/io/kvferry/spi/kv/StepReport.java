// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.Stats;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/// All that one worker half has to say after one step, in one piece.
///
/// @param payload for the scheduler half of the same connector; of one rank, not merged
/// @param stats since the last report
/// @param events since the last report; only what is really stored or gone
public record StepReport(
        int rank,
        long step,
        List<Completion> completions,
        Payload payload,
        Stats stats,
        List<CacheEvent> events) {
    public StepReport {
        Objects.requireNonNull(payload, "payload");
        Objects.requireNonNull(stats, "stats");
        completions = List.copyOf(completions);
        events = List.copyOf(events);
    }

    /// Nothing happened.
    public static StepReport empty(int rank, long step) {
        return new StepReport(rank, step, List.of(), Payload.EMPTY, Stats.EMPTY, List.of());
    }

    public boolean isEmpty() {
        return completions.isEmpty() && payload.isEmpty() && stats.isEmpty() && events.isEmpty();
    }

    public void write(WireWriter out) {
        out.i32(rank).i64(step).i32(completions.size());
        completions.forEach(completion -> completion.write(out));
        out.i32(payload.version()).bytes(payload.bytes());
        stats.write(out);
        out.i32(events.size());
        events.forEach(event -> event.write(out));
    }

    public static StepReport read(WireReader in) {
        int rank = in.i32();
        long step = in.i64();
        var completions = new ArrayList<Completion>();
        for (int n = in.count(18); n > 0; n--) {
            completions.add(Completion.read(in));
        }
        int version = in.i32();
        if (version < 0 || version > 0xffff) {
            throw new KvFerryException(
                    ErrorCode.PROTOCOL, "step report with payload version " + version);
        }
        var bytes = in.bytes();
        var payload = bytes.length == 0 ? Payload.EMPTY : new Payload(version, bytes);
        var stats = Stats.read(in);
        var events = new ArrayList<CacheEvent>();
        for (int n = in.count(5); n > 0; n--) {
            events.add(CacheEvent.read(in));
        }
        return new StepReport(rank, step, completions, payload, stats, events);
    }
}
