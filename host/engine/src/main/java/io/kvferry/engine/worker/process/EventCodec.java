// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.TreeMap;

/// The byte form of an [TraceEvent], for worker processes.
final class EventCodec {
    private EventCodec() {}

    static void write(WireWriter out, TraceEvent event) {
        switch (event) {
            case TraceEvent.Decision d -> {
                out.u8(0).string(d.requestId()).string(d.kind()).string(d.by()).string(d.chosen());
                out.i32(d.rejected().size());
                d.rejected().forEach(way -> out.string(way.name()).string(way.reason()));
                out.i64(d.promised());
            }
            case TraceEvent.Delivery d -> {
                out.u8(1).string(d.requestId()).string(d.kind()).string(d.by()).string(d.source());
                out.string(d.unit()).i64(d.promised()).i64(d.delivered()).i64(d.nanos());
                out.string(d.failure());
            }
            case TraceEvent.Incident i -> {
                out.u8(2).string(i.requestId()).string(i.kind()).string(i.by());
                out.i32(i.details().size());
                i.details().forEach((name, value) -> out.string(name).string(value));
            }
        }
    }

    /// @throws KvFerryException PROTOCOL when the bytes are no event
    static TraceEvent read(WireReader in) {
        int type = in.u8();
        var requestId = in.string();
        var kind = in.string();
        var by = in.string();
        return switch (type) {
            case 0 -> {
                var chosen = in.string();
                var rejected = new ArrayList<TraceEvent.Rejected>();
                for (int n = in.count(8); n > 0; n--) {
                    rejected.add(new TraceEvent.Rejected(in.string(), in.string()));
                }
                yield new TraceEvent.Decision(requestId, kind, by, chosen, rejected, in.i64());
            }
            case 1 ->
                    new TraceEvent.Delivery(
                            requestId,
                            kind,
                            by,
                            in.string(),
                            in.string(),
                            in.i64(),
                            in.i64(),
                            in.i64(),
                            in.string());
            case 2 -> {
                var details = new TreeMap<String, String>();
                for (int n = in.count(8); n > 0; n--) {
                    details.put(in.string(), in.string());
                }
                yield new TraceEvent.Incident(requestId, kind, by, details);
            }
            default ->
                    throw new KvFerryException(ErrorCode.PROTOCOL, "event of unknown type " + type);
        };
    }
}
