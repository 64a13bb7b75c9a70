// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.config;

import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.config.LoadFailurePolicy;
import io.kvferry.spi.config.OptionSchema;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;

/// Reads vLLM's connector configuration (`kv_` keys or their `ec_` twins).
///
/// Every key that any vLLM release had is understood, so that an operator's recipe carries over;
/// none is ignored silently. Unknown keys are refused with the nearest known one. What only makes
/// sense in Python (`kv_connector_module_path`) or inside vLLM (`enable_permute_local_kv: true`) is
/// refused with advice.
///
/// Threading: stateless.
public final class ConnectorConfigReader {

    private ConnectorConfigReader() {}

    /// Reads the JSON text of one connector configuration.
    ///
    /// @throws KvFerryException BAD_CONFIG; the message says which key, what is wrong with it and
    ///   what to write instead
    public static ConnectorConfig read(Family family, String json) {
        return read(family, ConfigText.of(family, json));
    }

    /// Reads the text of one connector configuration; messages say where it stands.
    ///
    /// @throws KvFerryException as above
    public static ConnectorConfig read(Family family, ConfigText text) {
        return read(family, text.where(), ConfigJson.object(text));
    }

    /// Reads an object that is parsed already.
    ///
    /// @param where how messages call the place, e.g. `--kv-transfer-config` or a file and key
    public static ConnectorConfig read(Family family, String where, Map<String, ?> raw) {
        var fields = checked(family, where, raw, List.of());
        var connector =
                fields.string(family.key("connector"))
                        .orElseThrow(() ->
                                fields.error(
                                        family.key("connector")
                                                + " is missing: the name of a connector, e.g. \""
                                                + (family == Family.KV
                                                        ? "DiskConnector"
                                                        : "MultiConnector")
                                                + "\""));
        var role =
                role(family, fields)
                        .orElseThrow(() ->
                                fields.error(
                                        family.key("role")
                                                + " is missing: one of "
                                                + roleNames(family)));
        var base = ConnectorConfig.of(connector, role, UUID.randomUUID().toString(), Map.of());
        return overlay(family, fields, base, connector, role);
    }

    /// Reads one entry of a composite's `connectors` list: the keys of a connector configuration,
    /// of which all but the connector's name may be left out and then are the parent's, and `name`,
    /// the child's instance name.
    ///
    /// @param nameKey the additional key that the caller reads itself
    public static ConnectorConfig readChild(
            Family family,
            String where,
            ConnectorConfig parent,
            Map<String, ?> raw,
            String nameKey) {
        var fields = checked(family, where, raw, List.of(nameKey));
        var connector =
                fields.string(family.key("connector"))
                        .orElseThrow(() ->
                                fields.error(
                                        family.key("connector")
                                                + " is missing: every child names its connector"));
        var role = role(family, fields).orElse(parent.role());
        return overlay(family, fields, parent, connector, role);
    }

    private static ConfigFields checked(
            Family family, String where, Map<String, ?> raw, List<String> more) {
        var fields = new ConfigFields(where, raw);
        var known = family.keys();
        known.addAll(more);
        for (var key : raw.keySet()) {
            if (!known.contains(key)) {
                throw fields.error(unknown(family, key, known));
            }
        }
        var modulePath = family.key("connector_module_path");
        if (fields.has(modulePath)) {
            throw fields.error(
                    modulePath
                            + " names a Python module, which a JVM cannot load. Put the connector's jar on the"
                            + " class path or into a sub-folder of the plugin folder, name it in "
                            + family.key("connector")
                            + ", and remove this key");
        }
        if (fields.flag("enable_permute_local_kv")) {
            throw fields.error(
                    "enable_permute_local_kv: kvferry never changes the order of dimensions on the way."
                            + " Give both engines the same KV layout and remove this key, or set it to false");
        }
        return fields;
    }

    private static String unknown(Family family, String key, List<String> known) {
        var twin = family == Family.KV ? Family.EC : Family.KV;
        var hint =
                twin.keys().contains(key)
                        ? "; it belongs to " + twin.optionName() + "."
                        : OptionSchema.nearest(key, known)
                                .map(near -> "; did you mean \"" + near + "\"?")
                                .orElse(".");
        return "unknown key \""
                + key
                + "\""
                + hint
                + " Known keys: "
                + String.join(", ", known)
                + ". Options of the connector itself go into "
                + family.key("connector_extra_config");
    }

    private static ConnectorConfig overlay(
            Family family,
            ConfigFields fields,
            ConnectorConfig base,
            String connector,
            KvRole role) {
        return new ConnectorConfig(
                connector,
                role,
                fields.string("engine_id").orElse(base.engineId()),
                fields.string(family.key("buffer_device")).orElse(base.bufferDevice()),
                fields.number(family.key("buffer_size"), base.bufferSizeBytes(), 0, Long.MAX_VALUE),
                (int) fields.number(family.key("rank"), base.rank(), 0, Integer.MAX_VALUE),
                (int)
                        fields.number(
                                family.key("parallel_size"),
                                base.parallelSize(),
                                1,
                                Integer.MAX_VALUE),
                fields.string(family.key("ip")).orElse(base.ip()),
                (int) fields.number(family.key("port"), base.port(), 0, 65_535),
                family == Family.KV
                        ? failurePolicy(fields).orElse(base.failurePolicy())
                        : base.failurePolicy(),
                fields.object(family.key("connector_extra_config")));
    }

    private static Optional<KvRole> role(Family family, ConfigFields fields) {
        var key = family.key("role");
        return fields.string(key)
                .map(text -> {
                    for (var role : KvRole.values()) {
                        if (text.equals(roleName(family, role))) {
                            return role;
                        }
                    }
                    throw fields.bad(key, "one of " + roleNames(family), text);
                });
    }

    private static Optional<LoadFailurePolicy> failurePolicy(ConfigFields fields) {
        return fields.string("kv_load_failure_policy")
                .map(text ->
                        switch (text) {
                            case "fail" -> LoadFailurePolicy.FAIL;
                            case "recompute" -> LoadFailurePolicy.RECOMPUTE;
                            default ->
                                    throw fields.bad(
                                            "kv_load_failure_policy",
                                            "\"fail\" or \"recompute\"",
                                            text);
                        });
    }

    private static String roleName(Family family, KvRole role) {
        return family.key(
                switch (role) {
                    case PRODUCER -> "producer";
                    case CONSUMER -> "consumer";
                    case BOTH -> "both";
                });
    }

    private static String roleNames(Family family) {
        var names = new StringBuilder();
        for (var role : KvRole.values()) {
            names.append(names.isEmpty() ? "" : ", ").append(roleName(family, role));
        }
        return names.toString();
    }
}
