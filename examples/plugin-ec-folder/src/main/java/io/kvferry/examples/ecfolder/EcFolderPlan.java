// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.ecfolder;

import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// What the scheduler half sends to the worker halves for one step: the items to load. The worker
/// halves see by themselves what is encoded in a step. Always encoded as bytes with a version, even
/// within one process.
record EcFolderPlan(List<Load> loads) {
    private static final int VERSION = 1;

    /// One item to load.
    record Load(TransferId id, EcItem item) {}

    Payload encode() {
        if (loads.isEmpty()) {
            return Payload.EMPTY;
        }
        var out = new WireWriter().i32(loads.size());
        for (var load : loads) {
            load.id.write(out);
            load.item.write(out);
        }
        return out.toPayload(VERSION);
    }

    static EcFolderPlan decode(Payload payload) {
        var loads = new ArrayList<Load>();
        if (payload.isEmpty()) {
            return new EcFolderPlan(loads);
        }
        var in = payload.reader("plan", VERSION);
        for (int n = in.count(8); n > 0; n--) {
            loads.add(new Load(TransferId.read(in), EcItem.read(in)));
        }
        in.end();
        return new EcFolderPlan(loads);
    }
}
