// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// What the composite itself has to tell its worker halves with the next plan.
final class PlanPayload {
    private final WireWriter out = new WireWriter(1024);
    private List<CompositePayload.Open> opened = new ArrayList<>();
    private List<TransferId> closed = new ArrayList<>();

    void opened(CompositePayload.Open open) {
        opened.add(open);
    }

    void closed(TransferId id) {
        closed.add(id);
    }

    /// Packs the children's plans and drains what gathered. What is over is told with the next plan
    /// that has anything else to say: nobody waits for it.
    Payload encode(Payload[] plans) {
        if (opened.isEmpty() && CompositePayload.ofChildren(plans).isEmpty()) {
            return Payload.EMPTY;
        }
        var payload = new CompositePayload(plans, opened, closed, new int[0]).encode(out);
        if (!opened.isEmpty()) {
            opened = new ArrayList<>();
        }
        if (!closed.isEmpty()) {
            closed = new ArrayList<>();
        }
        return payload;
    }
}
