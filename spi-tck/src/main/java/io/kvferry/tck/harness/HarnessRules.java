// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.LookupResult.LoadMode;

import java.util.List;

/// Rules of the contract that need no state of a harness. A breach is an [AssertionError].
final class HarnessRules {
    private HarnessRules() {}

    /// A hit is one that the contract allows.
    static void checkHit(
            HarnessShape shape,
            ConnectorCapabilities capabilities,
            HarnessRequest request,
            int localTokens,
            int tokens,
            LoadMode mode) {
        int most = mode == LoadMode.SYNC ? request.tokenCount() - 1 : request.tokenCount();
        var what =
                "lookup of "
                        + request.id()
                        + " with "
                        + localTokens
                        + " local tokens answers "
                        + tokens
                        + " "
                        + mode;
        if (localTokens + tokens > most) {
            throw new AssertionError(what + ": beyond the " + most + " that it may reach");
        }
        if ((localTokens + tokens) % shape.grain() != 0
                && localTokens + tokens != most
                && localTokens + tokens != request.tokenCount()) {
            throw new AssertionError(what + ": neither whole blocks nor up to the end");
        }
        var needed =
                mode == LoadMode.SYNC
                        ? ConnectorCapabilities.Feature.SYNC_LOAD
                        : ConnectorCapabilities.Feature.ASYNC_LOAD;
        if (!capabilities.has(needed)) {
            throw new AssertionError(what + " without claiming " + needed);
        }
    }

    /// A failed load names only blocks that it had.
    static void checkFailed(
            HarnessShape shape,
            HarnessRequest request,
            LoadAssignment load,
            List<Completion.FailedBlocks> blocks) {
        load.defect(shape.spec(), blocks)
                .ifPresent(what -> {
                    throw new AssertionError(
                            load.id() + " fails " + what + ", which is not in " + load);
                });
        for (var failed : blocks) {
            for (int position : failed.positions()) {
                if (request.blocks[failed.group()][position] == BlockTable.NO_BLOCK) {
                    throw new AssertionError(
                            load.id()
                                    + " fails position "
                                    + position
                                    + " of group "
                                    + failed.group()
                                    + ", where it has no block");
                }
            }
        }
    }
}
