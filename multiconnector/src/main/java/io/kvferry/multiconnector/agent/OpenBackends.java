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
import io.kvferry.spi.transfer.TransferBackends.Choice;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Function;

/// The open backends of an agent by name, in the order of their listing.
///
/// Threading: immutable.
final class OpenBackends {
    private final Map<String, OpenBackend> byName;

    private OpenBackends(Map<String, OpenBackend> byName) {
        this.byName = Collections.unmodifiableMap(new LinkedHashMap<>(byName));
    }

    /// Parameters for opening a backend, beside its options.
    ///
    /// @param sinks the sink of one backend, by its name
    record Opening(
            TransferAgent.Options options,
            PluginCatalog catalog,
            EventSink events,
            Function<String, BackendContext.Sink> sinks) {
        String where() {
            return "transfer backend of agent " + options.self();
        }
    }

    /// Opens backends, each on the thread that it is to live on; all of them or none.
    static OpenBackends open(Opening opening, List<Choice> choices) {
        var slots = new LinkedHashMap<String, OpenBackend>();
        try {
            for (var choice : choices) {
                var provider =
                        opening.catalog()
                                .of(TransferBackendProvider.class)
                                .require(opening.where(), choice.name());
                if (slots.containsKey(provider.name())) {
                    throw new KvFerryException(
                            ErrorCode.BAD_CONFIG,
                            opening.where()
                                    + ": "
                                    + provider.name()
                                    + " is listed twice; one of a kind per agent");
                }
                slots.put(provider.name(), open(opening, slots.size(), choice, provider));
            }
            return new OpenBackends(slots);
        } catch (RuntimeException e) {
            for (var slot : new ArrayList<>(slots.values()).reversed()) {
                try {
                    slot.close();
                } catch (RuntimeException suppressed) {
                    e.addSuppressed(suppressed);
                } finally {
                    slot.endLoop(); // nobody can close it later
                }
            }
            throw e;
        }
    }

    private static OpenBackend open(
            Opening opening, int place, Choice choice, TransferBackendProvider provider) {
        var values = provider.options().read("options of " + choice.name(), choice.options());
        if (provider.availability() instanceof Availability.Unavailable(var reason, var remedy)) {
            throw new KvFerryException(
                    ErrorCode.UNAVAILABLE,
                    opening.where()
                            + ": "
                            + choice.name()
                            + " cannot work here: "
                            + reason
                            + ". "
                            + remedy);
        }
        // Under the provider's own name, so that peers who use an alias have the same backend.
        var name = provider.name();
        var options = opening.options();
        var context =
                new BackendContext(
                        options.self(), values, opening.sinks().apply(name), opening.events());
        if (provider.capabilities(values).threading() == BackendCapabilities.Threading.CONCURRENT) {
            return slot(place, provider, context, Optional.empty());
        }
        var loopName = "kvferry-agent-" + options.self().agent() + "-" + name;
        var loop =
                options.loops() == TransferAgent.Loops.THREADS
                        ? OwnerLoop.threaded(loopName, options.callLimit())
                        : OwnerLoop.ofCaller(loopName, options.callLimit());
        try {
            return loop.make(
                    "open",
                    () -> slot(place, provider, context, Optional.of(loop)),
                    slot -> slot.backend().close());
        } catch (RuntimeException e) {
            loop.close();
            throw e;
        }
    }

    private static OpenBackend slot(
            int place,
            TransferBackendProvider provider,
            BackendContext context,
            Optional<OwnerLoop> loop) {
        var backend = provider.open(context);
        loop.ifPresent(owner -> owner.progress(backend::poll));
        return new OpenBackend(provider.name(), place, backend, loop);
    }

    Collection<OpenBackend> all() {
        return byName.values();
    }

    Set<String> names() {
        return byName.keySet();
    }

    boolean has(String name) {
        return byName.containsKey(name);
    }

    OpenBackend get(String name) {
        var slot = byName.get(name);
        if (slot == null) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND,
                    "no backend " + name + " is open in this agent; open: " + byName.keySet());
        }
        return slot;
    }
}
