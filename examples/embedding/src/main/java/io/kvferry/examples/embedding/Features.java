// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.embedding;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;

import java.util.EnumSet;
import java.util.Set;

/// The connector features that [StepLoop] supports. The loop does not call the methods of any other
/// feature.
final class Features {
    private static final Set<Feature> SERVED =
            EnumSet.of(
                    Feature.SYNC_LOAD, Feature.ASYNC_LOAD, Feature.SAVE, Feature.CONTENT_ADDRESSED);

    private Features() {}

    static void check(ConnectorCapabilities claimed) {
        var missing = EnumSet.copyOf(claimed.features());
        missing.removeAll(SERVED);
        if (!missing.isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE, "this step loop does not serve " + missing);
        }
    }
}
