// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector;

import io.kvferry.spi.Availability;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.OptionValues;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;

import java.util.stream.Collectors;

/// The checks between a configuration and the plugin that it names.
final class Selection {
    private Selection() {}

    static void checkAvailable(String where, Plugin plugin) {
        switch (plugin.availability()) {
            case Availability.Available _ -> {}
            case Availability.Unavailable(var reason, var remedy) ->
                    throw new KvFerryException(
                            ErrorCode.UNAVAILABLE,
                            where
                                    + ": "
                                    + plugin.name()
                                    + " cannot work here: "
                                    + reason
                                    + ". "
                                    + remedy);
        }
    }

    static OptionValues options(
            String extraKey, String instance, Plugin plugin, ConnectorConfig config) {
        return plugin.options().read(extraKey + " of " + instance, config.extra());
    }

    private static String layouts(KvCacheSpec cache) {
        return cache.groups().stream()
                .map(KvCacheGroup::format)
                .filter(KvFormat.Heads.class::isInstance)
                .map(format -> ((KvFormat.Heads) format).layout().name())
                .distinct()
                .collect(Collectors.joining(" and "));
    }

    static void checkCache(String instance, ConnectorCapabilities capabilities, KvCacheSpec cache) {
        capabilities
                .requiredLayout()
                .filter(layout -> !cache.has(layout))
                .ifPresent(layout -> {
                    throw new KvFerryException(
                            ErrorCode.INCOMPATIBLE,
                            instance
                                    + " needs KV layout "
                                    + layout
                                    + ", the engine's is "
                                    + layouts(cache)
                                    + ". Configure the engine for "
                                    + layout
                                    + " or choose another connector");
                });
        int groups = cache.groups().size();
        if (groups > 1 && !capabilities.has(ConnectorCapabilities.Feature.SEVERAL_GROUPS)) {
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    instance
                            + " works with one KV cache group, this model has "
                            + groups
                            + ". Choose a connector that claims SEVERAL_GROUPS");
        }
    }
}
