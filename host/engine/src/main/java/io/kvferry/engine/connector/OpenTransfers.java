// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.connector;

import io.kvferry.engine.connector.Transfer.Kind;
import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// The open transfers of one connector by id, in the order in which they were opened. A hold and
/// any number of leases may have the same id.
///
/// Threading: scheduler thread only.
final class OpenTransfers {
    private final Map<TransferId, List<Transfer>> byId = new LinkedHashMap<>();
    private int held;
    private int unanswered;

    void add(Transfer transfer) {
        byId.computeIfAbsent(transfer.id, _ -> new ArrayList<>(1)).add(transfer);
        held += transfer.kind == Kind.HOLD ? 1 : 0;
    }

    /// @return whether it was open
    boolean remove(Transfer transfer) {
        var all = byId.get(transfer.id);
        if (all == null || !all.remove(transfer)) {
            return false;
        }
        if (all.isEmpty()) {
            byId.remove(transfer.id);
        }
        held -= transfer.kind == Kind.HOLD ? 1 : 0;
        unanswered -= transfer.unanswered ? 1 : 0;
        return true;
    }

    /// Its revocation was not answered in time.
    void unanswered(Transfer transfer) {
        transfer.unanswered = true;
        unanswered++;
    }

    boolean contains(TransferId id) {
        return byId.containsKey(id);
    }

    boolean contains(Transfer transfer) {
        return under(transfer.id).contains(transfer);
    }

    /// Those with an id; a view.
    List<Transfer> under(TransferId id) {
        return byId.getOrDefault(id, List.of());
    }

    boolean isHeld(TransferId id) {
        return under(id).stream().anyMatch(transfer -> transfer.kind == Kind.HOLD);
    }

    /// A copy.
    List<TransferId> ids() {
        return List.copyOf(byId.keySet());
    }

    /// A copy.
    List<Transfer> all() {
        return byId.values().stream().flatMap(List::stream).toList();
    }

    boolean isEmpty() {
        return byId.isEmpty();
    }

    int held() {
        return held;
    }

    /// Transfers that were opened before that time and may keep their memory for long: holds that
    /// were not fetched, and transfers whose revocation is unanswered.
    List<Transfer> stale(long openedBefore) {
        if (held + unanswered == 0) {
            return List.of();
        }
        return all().stream().filter(transfer -> transfer.isStale(openedBefore)).toList();
    }

    /// Blocks of transfers whose revocation was not answered in time.
    int quarantinedBlocks() {
        if (unanswered == 0) {
            return 0;
        }
        var blocks = new BitSet(); // several may have the same
        for (var transfer : all()) {
            if (transfer.unanswered) {
                transfer.forEachBlock(blocks::set);
            }
        }
        return blocks.cardinality();
    }

    /// For a log.
    String describe() {
        var text = new StringBuilder();
        for (var transfer : all()) {
            text.append("\n    ")
                    .append(transfer.kind)
                    .append(' ')
                    .append(transfer.id)
                    .append(transfer.isRevoked() ? " revoked" : "")
                    .append(transfer.unanswered ? " unanswered" : "");
        }
        return text.toString();
    }
}
