// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.wire.CompositePayload;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.wire.Payload;
import io.kvferry.spi.wire.WireWriter;

import java.util.ArrayList;
import java.util.List;

/// The composite's own messages to its worker halves, sent with the next plan.
final class PlanPayload {
    private final WireWriter out = new WireWriter(1024);
    private List<CompositePayload.Open> opened = new ArrayList<>();
    private List<TransferId> revoked = new ArrayList<>();
    private List<TransferId> closed = new ArrayList<>();
    private List<CompositePayload.Change> changes = new ArrayList<>();

    void opened(CompositePayload.Open open) {
        opened.add(open);
    }

    /// The transfers that the next plan opens.
    List<CompositePayload.Open> opened() {
        return opened;
    }

    void revoked(TransferId part) {
        revoked.add(part);
    }

    void closed(TransferId id) {
        closed.add(id);
    }

    void changed(CompositePayload.Change change) {
        changes.add(change);
    }

    /// Packs the children's plans and drains what gathered. What is over is told with the next plan
    /// that has anything else to say: nobody waits for it. What is revoked was opened by this plan.
    Payload encode(Payload[] plans) {
        if (opened.isEmpty() && changes.isEmpty() && CompositePayload.ofChildren(plans).isEmpty()) {
            return Payload.EMPTY;
        }
        var payload =
                new CompositePayload(
                                plans, opened, revoked, closed, changes, CompositePayload.News.NONE)
                        .encode(out);
        if (!opened.isEmpty()) {
            opened = new ArrayList<>();
        }
        if (!revoked.isEmpty()) {
            revoked = new ArrayList<>();
        }
        if (!closed.isEmpty()) {
            closed = new ArrayList<>();
        }
        if (!changes.isEmpty()) {
            changes = new ArrayList<>();
        }
        return payload;
    }
}
