// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Availability;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.TransferBackendProvider;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Optional;

/// Opens the backends of an agent, each on the thread that it is to live on; all of them or none.
final class BackendOpener {
    private final AgentOptions options;
    private final PluginCatalog catalog;
    private final EventSink events;
    private final Inbox inbox;

    BackendOpener(AgentOptions options, PluginCatalog catalog, EventSink events, Inbox inbox) {
        this.options = options;
        this.catalog = catalog;
        this.events = events;
        this.inbox = inbox;
    }

    Slots openAll(List<BackendConfig> configs) {
        var slots = new LinkedHashMap<String, BackendSlot>();
        try {
            for (var config : configs) {
                var provider =
                        catalog.of(TransferBackendProvider.class).require(where(), config.name());
                if (slots.containsKey(provider.name())) {
                    throw new KvFerryException(
                            ErrorCode.BAD_CONFIG,
                            where()
                                    + ": "
                                    + provider.name()
                                    + " is listed twice; one of a kind per agent");
                }
                slots.put(provider.name(), open(config, provider));
            }
            return new Slots(slots);
        } catch (RuntimeException e) {
            for (var slot : new ArrayList<>(slots.values()).reversed()) {
                try {
                    slot.close();
                } catch (RuntimeException suppressed) {
                    e.addSuppressed(suppressed);
                }
            }
            throw e;
        }
    }

    private String where() {
        return "transfer backend of agent " + options.self();
    }

    private BackendSlot open(BackendConfig config, TransferBackendProvider provider) {
        var values = provider.options().read("options of " + config.name(), config.options());
        if (provider.availability() instanceof Availability.Unavailable(var reason, var remedy)) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    where()
                            + ": "
                            + config.name()
                            + " cannot work here: "
                            + reason
                            + ". "
                            + remedy);
        }
        // Under the provider's own name, so that peers who use an alias have the same backend.
        var name = provider.name();
        var context = new BackendContext(options.self(), values, inbox.of(name), events);
        return provider.capabilities(values).threading() == BackendCapabilities.Threading.CONFINED
                ? confined(config, provider, context)
                : slot(config, provider, context, Optional.empty());
    }

    private BackendSlot confined(
            BackendConfig config, TransferBackendProvider provider, BackendContext context) {
        var loopName = "kvferry-agent-" + options.self().agent() + "-" + provider.name();
        var loop =
                options.loops() == AgentOptions.Loops.THREADS
                        ? OwnerLoop.threaded(loopName, options.callLimit())
                        : OwnerLoop.ofCaller(loopName, options.callLimit());
        try {
            return loop.call("open", () -> slot(config, provider, context, Optional.of(loop)));
        } catch (RuntimeException e) {
            loop.close();
            throw e;
        }
    }

    private static BackendSlot slot(
            BackendConfig config,
            TransferBackendProvider provider,
            BackendContext context,
            Optional<OwnerLoop> loop) {
        var backend = provider.open(context);
        loop.ifPresent(owner -> owner.progress(backend::poll));
        return new BackendSlot(
                provider.name(), config.priority(), backend, backend.capabilities(), loop);
    }
}
