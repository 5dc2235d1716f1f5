// What the plugin is told by its user, and small helpers. No `$` in here: older hosts follow it within one file only.
import type { PluginOptions } from 'claude-code'

export type Link = { options: PluginOptions; command: string; timeoutMs: number; socketPath: string }

export const text = (options: PluginOptions, name: string, otherwise = ''): string => {
  const value = options[name]
  return typeof value === 'string' && value !== '' ? value : otherwise
}

export const number = (options: PluginOptions, name: string, otherwise: number): number => {
  const value = options[name]
  return typeof value === 'number' && Number.isFinite(value) ? value : otherwise
}

export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

export const lastLine = (said: string): string => said.trim().split('\n').pop() ?? ''

export const linkOf = (options: PluginOptions): Link => ({
  options,
  command: text(options, 'command', 'jev-engine'),
  timeoutMs: 1_000 * Math.min(600, Math.max(1, number(options, 'timeoutSeconds', 60))),
  socketPath: '',
})
