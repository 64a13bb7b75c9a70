// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.backend.nccl.plane.DataPlane.Outcome;
import io.kvferry.backend.nccl.plane.GrantProof;
import io.kvferry.spi.Failure;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/// The transfers of a plane that have not ended.
///
/// Threading: any thread, except where a method says otherwise.
final class OpenTransfers {
    private static final Logger LOG = LoggerFactory.getLogger(OpenTransfers.class);

    private final String name;

    /// Windows without a sender yet, by their grants.
    private final Map<GrantProof.Name, NcclWindow> unused = new ConcurrentHashMap<>();

    /// All of them.
    private final Set<NcclWindow> windows = ConcurrentHashMap.newKeySet();

    private final Set<NcclSending> sendings = ConcurrentHashMap.newKeySet();

    /// @param name of the plane
    OpenTransfers(String name) {
        this.name = name;
    }

    void add(NcclWindow window) {
        windows.add(window);
    }

    void add(NcclSending sending) {
        sendings.add(sending);
    }

    /// From now on a sender may come to it.
    void expose(NcclWindow window) {
        unused.put(window.proof().name(), window);
    }

    /// No sender may come to it any more.
    void hide(NcclWindow window) {
        unused.remove(window.proof().name(), window);
    }

    /// The window of a grant to which no sender has come; null when there is none.
    @Nullable NcclWindow find(GrantProof.Name grant) {
        return unused.get(grant);
    }

    /// Uses up the grant of a window.
    ///
    /// @return false when it was, or the window is not open any more
    boolean take(NcclWindow window) {
        return unused.remove(window.proof().name(), window) && window.open();
    }

    void forget(NcclWindow window) {
        hide(window);
        windows.remove(window);
    }

    void forget(NcclSending sending) {
        sendings.remove(sending);
    }

    boolean isEmpty() {
        return windows.isEmpty() && sendings.isEmpty();
    }

    /// Ends all, without the loop. What a copy reads or writes ends with the copy.
    void end(Failure why) {
        var outcome = new Outcome.Failed(why);
        windows.forEach(window -> guarded(() -> window.finish(outcome)));
        sendings.forEach(sending -> guarded(() -> sending.finish(outcome)));
    }

    private void guarded(Runnable step) {
        try {
            step.run();
        } catch (RuntimeException | Error e) { // of one transfer: the others must hear too
            LOG.error("{}: telling the end of a transfer failed", name, e);
        }
    }

    /// Gives up what no link has, on the loop.
    void giveUp(Failure why) {
        for (var window : List.copyOf(unused.values())) {
            window.giveUp(why);
        }
        for (var sending : List.copyOf(sendings)) {
            sending.giveUp(why);
        }
    }
}
