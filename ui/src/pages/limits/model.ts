// The configuration as the API answers it (docs/openapi.json has all fields).

export const perUnit = (unit: string): string => `per ${unit}`;

export interface Mistake {
  readonly file: string;
  readonly line?: number;
  readonly column?: number;
  readonly path?: string;
  readonly text: string;
  readonly hint?: string;
}

/** As compilers write it, so that editors know the place. */
export const placeOf = ({ file, line, column }: Mistake): string => [file, line, column].filter(Boolean).join(":");

export interface Load {
  readonly source: string;
  readonly place: string;
  readonly counting_since: string;
  readonly loaded_at: string | null;
  readonly files: number;
  readonly domains: number;
  readonly descriptors: number;
  readonly limits: number;
  readonly refused: { readonly at: string; readonly mistakes: readonly Mistake[]; readonly more: number } | null;
  readonly unreadable: readonly Mistake[];
}

export interface Use {
  readonly hits: number;
  readonly near_limit: number;
  readonly over_limit: number;
  readonly shadow_mode: number;
}

/** Rates of the last minute. */
export interface LimitRates {
  readonly window_ms: number;
  readonly hits_per_second: number;
  readonly refused_per_second: number;
  readonly refused_share: number;
}

/** Usage of the busiest of its keys. */
export interface LimitUsage {
  readonly used: number;
  readonly of: number;
  readonly resets_at: string;
  readonly entries: readonly (readonly string[])[];
  readonly values: number;
  readonly is_estimate: boolean;
  readonly full: number;
  readonly near: number;
}

export interface Override {
  readonly effect: string;
  readonly rule?: string;
  readonly domain?: string;
  readonly entries?: readonly (readonly string[])[];
  readonly scale?: number;
  readonly gateway: boolean;
  readonly until: string | null;
  readonly at: string;
  readonly by: string;
  readonly reason: string;
}

export interface ConfiguredLimit {
  readonly rule: string;
  readonly name: string;
  readonly requests_per_unit: number | null;
  readonly unit: string | null;
  readonly shadow_mode: boolean;
  readonly quota_mode: boolean;
  readonly detailed_metric: boolean;
  readonly pause_when_throttled: boolean;
  readonly has_metadata: boolean;
  readonly replaces: readonly string[];
  readonly use?: Use;
  readonly now?: LimitRates;
  readonly usage?: LimitUsage;
  readonly overrides?: readonly Override[];
}

export interface Descriptor {
  readonly key: string;
  readonly value: string;
  readonly cut?: boolean;
  readonly file: string;
  readonly line?: number;
  readonly limit?: ConfiguredLimit;
  readonly value_to_metric?: boolean;
  readonly share_threshold?: boolean;
  readonly children: number;
  readonly limits_below: number;
  readonly descriptors?: readonly Descriptor[];
}

export interface Domain {
  readonly name: string;
  readonly cut?: boolean;
  readonly files: readonly string[];
  readonly children: number;
  readonly limits: number;
  readonly descriptors?: readonly Descriptor[];
}

export interface SearchHit {
  readonly domain: string;
  readonly entries: readonly (readonly string[])[];
  readonly way_cut?: boolean;
  readonly descriptor: Descriptor;
}

export interface Level {
  readonly version: number;
  readonly counted_at: string;
  readonly load?: Load;
  readonly domains?: readonly Domain[];
  readonly descriptors?: readonly Descriptor[];
  readonly found?: readonly SearchHit[];
  readonly next_cursor: string | null;
}
