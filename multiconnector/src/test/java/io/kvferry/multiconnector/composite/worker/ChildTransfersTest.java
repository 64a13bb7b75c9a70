// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.worker;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.multiconnector.composite.wire.CompositePayload;
import io.kvferry.spi.kv.TransferId;

import org.junit.jupiter.api.Test;

import java.util.List;

/// What a rank does with completions of loads that it was not given.
class ChildTransfersTest {
    private static final int LEAF = 0;
    private static final int COMPOSITE = 1;
    private static final TransferId LOAD = TransferId.load("r1", 0);

    private final ChildNames names = new ChildNames(List.of("leaf", "composite"));
    private final ChildTransfers transfers = new ChildTransfers(names, 0);

    private void open(int child, TransferId id) {
        var part = names.outward(child, id);
        transfers.open(new CompositePayload.Open(LOAD, child, part, false, child == COMPOSITE));
    }

    private boolean ended(int child, TransferId id) {
        return transfers.ended(child, names.outward(child, id));
    }

    /// If it were passed on, the engine would later take it for the completion of the retry.
    @Test
    void dropsAFurtherTryThatALeafReportsWhileItLoadsAnotherPart() {
        open(LEAF, LOAD);
        var further = LOAD.forChild("~1");
        assertThat(ended(LEAF, further)).isFalse();
        assertThat(ended(LEAF, LOAD)).isTrue();
        open(LEAF, further);
        assertThat(ended(LEAF, further)).isTrue();
    }

    @Test
    void dropsLoadsThatNobodyHasOpened() {
        assertThat(ended(LEAF, LOAD)).isFalse();
        assertThat(ended(COMPOSITE, LOAD)).isFalse();
    }

    /// A composite names the parts of what it loads after its own children.
    @Test
    void passesOnWhatTheChildrenOfACompositeReport() {
        open(COMPOSITE, LOAD);
        assertThat(ended(COMPOSITE, LOAD.forChild("inner"))).isTrue();
        assertThat(ended(COMPOSITE, LOAD.forChild("inner/~1"))).isTrue();
        assertThat(ended(COMPOSITE, LOAD)).isTrue();
    }
}
