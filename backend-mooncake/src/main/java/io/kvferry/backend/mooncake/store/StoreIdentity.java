// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store;

import java.util.Objects;

/// Whose objects they are and what their bytes mean. A user of a store sees only objects of an
/// equal identity: those of another tenant, model or layout are misses, also under the same key.
///
/// @param tenant `default` where there is one only
/// @param model whatever tells two models apart
/// @param layout of the bytes: element type, block size, order, version
public record StoreIdentity(String tenant, String model, String layout) {
    /// Mooncake's tenant of those who name none.
    public static final String DEFAULT_TENANT = "default";

    public StoreIdentity {
        tenant = tenant.isBlank() ? DEFAULT_TENANT : tenant.strip();
        Objects.requireNonNull(model, "model");
        Objects.requireNonNull(layout, "layout");
    }

    // Written by hand: those of records allocate at times, and a removal must not fail where the
    // heap is full.
    @Override
    public boolean equals(Object other) {
        return other instanceof StoreIdentity identity
                && tenant.equals(identity.tenant)
                && model.equals(identity.model)
                && layout.equals(identity.layout);
    }

    @Override
    public int hashCode() {
        return 31 * (31 * tenant.hashCode() + model.hashCode()) + layout.hashCode();
    }
}
