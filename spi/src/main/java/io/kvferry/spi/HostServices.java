// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import io.kvferry.spi.observe.EventSink;

import java.util.Optional;

/// What the host offers to the plugins it opens. A plugin shares resources with others (a staging
/// pool, a transfer agent) only through a service of the host, never through statics.
///
/// Threading: any thread.
public interface HostServices {
    /// A host that offers nothing: tests, and static queries.
    HostServices NONE =
            new HostServices() {
                @Override
                public EventSink events() {
                    return EventSink.NONE;
                }

                @Override
                public <T> Optional<T> find(Class<T> service) {
                    return Optional.empty();
                }
            };

    EventSink events();

    /// The host's instance of a service interface; it outlives every plugin, which must not close
    /// it.
    <T> Optional<T> find(Class<T> service);
}
