// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireReader;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// What the in-memory encoder-cache connector's scheduler half tells its worker halves in one step.
record MemoryEcPlan(List<Load> loads, List<Hold> holds) {
    private static final int VERSION = 1;

    /// An item to load.
    record Load(TransferId id, boolean sync, EcItem item) {}

    /// Store keys of an ended request's items, and the right under which they stay.
    record Hold(TransferId id, List<String> keys) {}

    Payload encode() {
        if (loads.isEmpty() && holds.isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter().i32(loads.size());
        for (var load : loads) {
            load.id.write(out);
            load.item.write(out.bool(load.sync));
        }
        out.i32(holds.size());
        for (var hold : holds) {
            hold.id.write(out);
            out.i32(hold.keys.size());
            hold.keys.forEach(out::string);
        }
        return out.toPayload(VERSION);
    }

    static MemoryEcPlan decode(Payload payload) {
        if (payload.isEmpty()) {
            return new MemoryEcPlan(List.of(), List.of());
        }
        var in = payload.reader("encoder plan", VERSION);
        var loads = new ArrayList<Load>();
        for (int n = in.count(30); n > 0; n--) {
            loads.add(new Load(TransferId.read(in), in.bool(), EcItem.read(in)));
        }
        var holds = new ArrayList<Hold>();
        for (int n = in.count(13); n > 0; n--) {
            holds.add(new Hold(TransferId.read(in), keys(in)));
        }
        in.end();
        return new MemoryEcPlan(loads, holds);
    }

    private static List<String> keys(WireReader in) {
        var keys = new ArrayList<String>();
        for (int n = in.count(4); n > 0; n--) {
            keys.add(in.string());
        }
        return keys;
    }
}
