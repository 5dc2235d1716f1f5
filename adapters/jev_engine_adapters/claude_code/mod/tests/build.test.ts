import { describe, expect, test } from 'claude-code/testing'
import { type Answer, build, slim } from '../hooks/build'

const call = (id: string, command: string) => ({ tool_use_id: id, tool: 'Bash', input: { command } })

const MESSAGES = [
  { role: 'user' as const, text: 'Mend it.', toolUses: [], handle: 'h0' },
  { role: 'assistant' as const, text: '', toolUses: [], handle: 'h1' },
  { role: 'assistant' as const, text: 'Looking.', toolUses: [], handle: 'h2' },
  { role: 'assistant' as const, text: '', toolUses: [call('a', 'cat x')], handle: 'h3' },
  { role: 'assistant' as const, text: '', toolUses: [call('b', 'cat y')], handle: 'h4' },
  { role: 'user' as const, text: '', toolUses: [], toolResults: [{ tool_use_id: 'a', text: 'xxx', isError: false }], handle: 'h5' },
  { role: 'user' as const, text: '', toolUses: [], toolResults: [{ tool_use_id: 'b', text: 'yyy', isError: true }], handle: 'h6' },
]

const answer = (steps: Answer['steps'], gone: number[] = [1]): Answer => ({
  v: 1, act: 'replace', reason: '', steps, gone, toast: '', log: [],
})

const WHOLE = [{ keep: 0 }, { merge: [2, 3, 4] }, { results: [[5, 0, 'short'], [6, 0]] as [number, number, string?][] }]

describe('slim', () => {
  test('sends texts, calls and results, and not twice', () => {
    const sent = slim(MESSAGES)

    expect(sent[3]?.calls).toEqual([{ id: 'a', name: 'Bash', input: { command: 'cat x' } }])
    expect(sent[6]?.results).toEqual([{ id: 'b', text: 'yyy', error: true }])
    expect(JSON.stringify(sent)).not.toContain('h0')
  })

  test('says which results hold more than text', () => {
    const shot = { tool_use_id: 'a', text: '', isError: false, result: { type: 'image', file: {} } }
    const pair = { ...shot, result: [{ type: 'text', text: 'x' }, { type: 'image' }] }
    const plain = { ...shot, text: 'x', result: { stdout: 'x' } }
    const row = { role: 'user' as const, text: '', toolUses: [], toolResults: [shot, pair, plain] }

    expect(slim([row])[0]?.results.map(r => r.nontext ?? false)).toEqual([true, true, false])
  })
})

describe('build', () => {
  test('keeps the row of a person, merges a response, shortens a result', () => {
    const built = build(MESSAGES, answer(WHOLE))

    expect(built[0]).toBe(MESSAGES[0])
    expect(built.slice(1)).toEqual([
      { role: 'assistant', text: 'Looking.', toolUses: [call('a', 'cat x'), call('b', 'cat y')] },
      {
        role: 'user',
        text: '',
        toolUses: [],
        toolResults: [
          { tool_use_id: 'a', text: 'short', isError: false },
          { tool_use_id: 'b', text: 'yyy', isError: true },
        ],
      },
    ])
  })

  test('leaves out a call that goes', () => {
    const steps = [{ keep: 0 }, { merge: [2, 3, 4], without: ['b'] }, { results: [[5, 0]] as [number, number][] }]

    const built = build(MESSAGES, answer(steps, [1, 6]))

    expect(built[1]?.toolUses).toEqual([call('a', 'cat x')])
  })

  test('keeps text beside results in a row of its own', () => {
    const both = [{ ...MESSAGES[5]!, text: 'A note.' }]

    expect(build(both, answer([{ results: [[0, 0]] }, { results: [], texts: [0] }], []))[1]).toEqual({
      role: 'user', text: 'A note.', toolUses: [],
    })
  })

  for (const [what, wrong] of Object.entries({
    'a row is missing': answer(WHOLE.slice(0, 2)),
    'a row is none': answer([...WHOLE, { keep: 99 }]),
    'a row is no number': answer([...WHOLE, { keep: '0' as unknown as number }]),
    'a result is none': answer([...WHOLE, { results: [[5, 7]] }]),
    'a step is empty': answer([...WHOLE, {}]),
    'there are no steps': answer(null),
    'another version speaks': { ...answer(WHOLE), v: 2 },
  })) {
    test(`refuses when ${what}`, () => {
      expect(() => build(MESSAGES, wrong)).toThrow()
    })
  }
})
