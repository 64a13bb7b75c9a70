// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.config.ConnectorConfigReader;
import io.kvferry.multiconnector.config.Family;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.config.OptionValues;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/// The options of a composite.
///
/// @param children in order; the order is the preference
/// @param namespacedParams whether each child's params go out under its instance name, instead of
///   vLLM's flat form
/// @param failoverWait how long a failed load may wait for a child that does not know yet whether
///   it can help
/// @param reopenPause how long a child stays off after a defect before it is opened again; twice as
///   long each time, as an engine does with its connectors
/// @param reopenLimit how long the worker halves of a child may take to be opened again
/// @param closeGrace how long a step waits for the worker half of a child that is turned off to be
///   closed; after that the steps go on while it is
public record CompositeOptions(
        List<ChildConfig> children,
        LoadPolicy policy,
        boolean namespacedParams,
        Duration failoverWait,
        Duration reopenPause,
        Duration reopenLimit,
        Duration closeGrace) {
    static final OptionSchema SCHEMA =
            OptionSchema.of(
                    Option.of(
                                    "connectors",
                                    Option.Type.JSON,
                                    "the children: a list of connector configurations, each may have a name")
                            .asRequired(),
                    Option.choice(
                            "load_policy",
                            "which child loads: the first with a hit, the one with the longest, or several in turn",
                            LoadPolicy.FIRST_HIT.label(),
                            LoadPolicy.LONGEST_HIT.label(),
                            LoadPolicy.COMPOSE.label()),
                    Option.choice(
                            "params_form",
                            "how kv_transfer_params of children go out: merged as in vLLM, or each under its instance name",
                            "flat",
                            "namespaced"),
                    Option.of(
                                    "failover_wait",
                                    Option.Type.DURATION,
                                    "how long a failed load waits for another child's lookup")
                            .withDefault("2s")
                            .inRange(0, 3600),
                    Option.of(
                                    "reopen_pause",
                                    Option.Type.DURATION,
                                    "how long a child stays off after a defect before it is opened again; twice as long each time")
                            .withDefault("1s")
                            .inRange(0, 60),
                    Option.of(
                                    "reopen_limit",
                                    Option.Type.DURATION,
                                    "how long the ranks may take to open a child again")
                            .withDefault("2min")
                            .inRange(0, 3600),
                    Option.of(
                                    "close_grace",
                                    Option.Type.DURATION,
                                    "how long a step waits for a child that is turned off to be closed")
                            .withDefault("500ms")
                            .inRange(0, 60));

    private static final String NAME = "name";
    private static final Pattern NAME_FORM = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._-]*");

    /// One child: its instance name, unique within the composite, and its configuration.
    record ChildConfig(String name, ConnectorConfig config) {}

    static CompositeOptions read(
            Family family, String instance, ConnectorConfig config, OptionValues options) {
        return new CompositeOptions(
                children(family, instance, config, options.json("connectors")),
                LoadPolicy.of(options.string("load_policy")),
                options.string("params_form").equals("namespaced"),
                options.duration("failover_wait"),
                options.duration("reopen_pause"),
                options.duration("reopen_limit"),
                options.duration("close_grace"));
    }

    private static List<ChildConfig> children(
            Family family, String instance, ConnectorConfig parent, Object json) {
        var where = family.key("connector_extra_config") + " of " + instance + ": connectors";
        if (!(json instanceof List<?> list) || list.isEmpty()) {
            throw bad(
                    where
                            + ": expected a list of at least one connector configuration, got "
                            + json);
        }
        var configs = new ArrayList<ConnectorConfig>();
        var names = new ArrayList<String>();
        for (int i = 0; i < list.size(); i++) {
            var at = where + "[" + i + "]";
            if (!(list.get(i) instanceof Map<?, ?> entry)) {
                throw bad(at + ": expected a JSON object, got " + list.get(i));
            }
            var raw = new LinkedHashMap<String, Object>();
            entry.forEach((key, value) -> raw.put(String.valueOf(key), value));
            configs.add(ConnectorConfigReader.readChild(family, at, parent, raw, NAME));
            names.add(explicitName(at, raw.get(NAME)));
        }
        return named(where, configs, names);
    }

    private static String explicitName(String at, @Nullable Object name) {
        if (name == null) {
            return "";
        }
        if (name instanceof String text && NAME_FORM.matcher(text).matches()) {
            return text;
        }
        throw bad(at + ": name: expected letters, digits, '.', '_' and '-', got \"" + name + "\"");
    }

    private static List<ChildConfig> named(
            String where, List<ConnectorConfig> configs, List<String> explicit) {
        var taken = new HashSet<String>();
        for (var name : explicit) {
            if (!name.isEmpty() && !taken.add(name)) {
                throw bad(
                        where
                                + ": two children are named \""
                                + name
                                + "\"; give each a name of its own");
            }
        }
        var children = new ArrayList<ChildConfig>();
        for (int i = 0; i < configs.size(); i++) {
            var name = explicit.get(i);
            var base = configs.get(i).connector();
            for (int n = 1; name.isEmpty(); n++) {
                var candidate = n == 1 ? base : base + "-" + n;
                name = taken.add(candidate) ? candidate : "";
            }
            children.add(new ChildConfig(name, configs.get(i)));
        }
        return List.copyOf(children);
    }

    private static KvFerryException bad(String message) {
        return new KvFerryException(ErrorCode.BAD_CONFIG, message);
    }
}
