// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.config;

import java.util.ArrayList;
import java.util.List;

/// The two twins of vLLM's connector configuration, whose keys differ only in their prefix.
public enum Family {
    /// `--kv-transfer-config`.
    KV("kv_"),
    /// `--ec-transfer-config`.
    EC("ec_");

    private final String prefix;

    Family(String prefix) {
        this.prefix = prefix;
    }

    /// The key of this family, e.g. `kv_role` for `role`.
    public String key(String suffix) {
        return prefix + suffix;
    }

    /// The command line option of vLLM that carries this configuration: how messages call it.
    public String optionName() {
        return "--" + prefix.charAt(0) + prefix.charAt(1) + "-transfer-config";
    }

    /// Every key that vLLM has or had, in the order in which messages list them.
    List<String> keys() {
        var keys = new ArrayList<String>();
        for (var suffix : List.of("connector", "role", "connector_extra_config")) {
            keys.add(key(suffix));
        }
        keys.add("engine_id");
        for (var suffix :
                List.of("buffer_device", "buffer_size", "rank", "parallel_size", "ip", "port")) {
            keys.add(key(suffix));
        }
        keys.add(key("connector_module_path"));
        if (this == KV) {
            keys.add("kv_load_failure_policy");
            keys.add("enable_permute_local_kv");
        }
        return keys;
    }
}
