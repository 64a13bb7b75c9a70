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

    /// Removes a part from the next plan because its child refused it. Must not allocate.
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

    /// Drops the changes of a plan that was not built; the slots add them again.
    void forgetChanges() {
        changes.clear();
    }

    void changed(CompositePayload.Change change) {
        changes.add(change);
    }

    /// Encodes the children's plans and drains the collected messages. Closed ids alone do not
    /// cause a message; they wait for the next non-empty plan. Revoked parts were opened by this
    /// same plan. If encoding throws, for example because memory runs out, everything stays for the
    /// next plan.
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
