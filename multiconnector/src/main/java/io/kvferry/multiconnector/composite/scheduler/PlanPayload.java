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
    private final List<CompositePayload.Open> opened = new ArrayList<>();
    private final List<TransferId> revoked = new ArrayList<>();
    private final List<TransferId> closed = new ArrayList<>();
    private final List<CompositePayload.Change> changes = new ArrayList<>();

    void opened(CompositePayload.Open open) {
        opened.add(open);
    }

    /// Takes a part out of the next plan: its child did not take it. Needs no memory.
    void notOpened(TransferId part) {
        for (int i = opened.size() - 1; i >= 0; i--) {
            if (opened.get(i).part().equals(part)) {
                opened.remove(i);
                return;
            }
        }
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

    /// Those of a plan that was not made: each is said again.
    void forgetChanges() {
        changes.clear();
    }

    void changed(CompositePayload.Change change) {
        changes.add(change);
    }

    /// Packs the children's plans and drains what gathered. What is over is told with the next plan
    /// that has anything else to say: nobody waits for it. What is revoked was opened by this plan.
    /// Where it throws, for lack of memory, all waits for the next plan.
    Payload encode(Payload[] plans) {
        if (opened.isEmpty() && changes.isEmpty() && CompositePayload.ofChildren(plans).isEmpty()) {
            return Payload.EMPTY;
        }
        var payload =
                new CompositePayload(
                                plans, opened, revoked, closed, changes, CompositePayload.News.NONE)
                        .encode(out);
        opened.clear();
        revoked.clear();
        closed.clear();
        changes.clear();
        return payload;
    }
}
